"""The console of a standby: which member it is, how far behind, and the way to the active member's console."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.cli.operate.test_cluster import Group
from tests.cluster.nats import NatsCluster
from tests.fire.real_node import wait_until
from tests.node.http.console.browser import Watched, chromium

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as servers:
        found = Group(tmp_path_factory.mktemp("group"), servers.url)
        yield found
        for process in found.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def roles(group: Group) -> tuple[str, str]:
    """The active member and the standby, once there are both."""
    found: dict[str, str] = {}

    def known() -> bool:
        found.clear()
        for member, url in group.http.items():
            try:
                answer = httpx.get(f"{url}/readyz", trust_env=False)
            except httpx.HTTPError:
                return False
            found["active" if answer.is_success else answer.json()["role"]] = member
        return found.keys() == {"active", "standby"}

    wait_until(known, 60)
    return found["active"], found["standby"]


@pytest.mark.parametrize(("width", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_it_says_which_member_it_is_and_leads_to_the_active_one(
    group: Group, browser: Browser, width: str, scheme: str
) -> None:
    active, standby = roles(group)
    watched = Watched(browser, group.http[standby], width, scheme)
    page = watched.open("topics")
    expect(page.get_by_role("heading", name=standby, exact=True)).to_be_visible()
    expect(page.locator(".badge.warn")).to_have_text("standby")
    expect(page.locator(".stats")).to_contain_text("records")
    expect(page.get_by_role("region", name="Members").locator("tbody tr")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= watched.width
    assert watched.check_access() == []
    page.get_by_role("link", name=f"Open the console of {active}").click()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    assert page.url == f"{group.http[active]}/#/topics"
    assert [fault for fault in watched.faults if "503" not in fault] == []
    watched.close()


def test_it_serves_the_files_of_the_console_alone(group: Group) -> None:
    active, standby = roles(group)
    with httpx.Client(base_url=group.http[standby], trust_env=False) as http:
        page = http.get("/")
        assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
        again = http.get("/", headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert http.get("/console/app.js").headers["content-type"].startswith("text/javascript")
        assert http.get("/console/nothing.js").status_code == 404
        refused = http.get("/v1/topics")
        assert (refused.status_code, refused.json()["code"]) == (503, "not-active")
        assert active in refused.json()["message"]
        place = http.get("/readyz").json()
    assert (place["member"], place["role"], place["active"]) == (standby, "standby", active)
    assert place["active_http"] == group.http[active]
