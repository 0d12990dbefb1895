"""The console of ``headpond up``: the sliders of the lossy link, at two widths, and Spark's hops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, expect

import headpond.sync
from tests.cli.up.running import Up, up
from tests.fire.real_node import wait_until
from tests.node.http.console.browser import Watched, chromium
from tests.node.http.nodes import HttpNode

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
LONG_MS = 90_000
"""So long a busy machine may need for a dozen messages over the link."""
PAGES = (
    "",
    "topics",
    "topics/orders",
    "topics/orders/messages",
    "topics/payments/delivery",
    "delivery",
    "dead/emails/mailer",
    "links",
    "tokens",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def running() -> Iterator[Up]:
    with up() as found:
        found.read_until("Ctrl-C")

        def busy() -> bool:
            with found.client() as http:
                each = http.get("/v1/topics/payments/subscriptions/accounting")
                return each.status_code == 200 and each.json()["settled"] > 0

        wait_until(busy, 120)
        yield found


@pytest.mark.parametrize(("width", "scheme"), [("desktop", "dark"), ("phone", "light")])
def test_every_page_is_without_a_fault_while_the_node_is_busy(
    browser: Browser, running: Up, width: str, scheme: str
) -> None:
    watched = Watched(browser, running.console, width, scheme)
    for path in PAGES:
        page = watched.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= watched.width, path
        assert page.locator(".fault").count() == 0, path
        assert watched.scrolled_tables() == [], path
        assert watched.check_access() == [], path
    assert watched.faults == []
    watched.close()


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_a_slider_changes_the_link_and_with_it_r_and_ur(browser: Browser, running: Up, width: str) -> None:
    watched = Watched(browser, running.console, width)
    page = watched.open("delivery")
    with running.client() as http:
        for name, label in (("loss", "Loss"), ("duplicates", "Duplicates"), ("delay_s", "Delay")):
            http.patch("/v1/lossy-link", json={name: 0.0}).raise_for_status()
            page.get_by_label(label, exact=True).fill("0.05")

            def changed(name: str = name) -> bool:
                return bool(http.get("/v1/lossy-link").json()["faults"][name] == 0.05)

            wait_until(changed)
    expect(page.get_by_label("Loss", exact=True)).to_have_attribute("aria-valuetext", "5 %")
    expect(page.get_by_label("Delay", exact=True)).to_have_attribute("aria-valuetext", "50 ms")
    hops = page.get_by_role("region", name="Hops over the lossy link")
    expect(hops.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Loss", exact=True).fill("0")
    page.get_by_label("Duplicates", exact=True).fill("0.4")
    page.get_by_role("button", name="Last 30 s").click()
    first = hops.locator("tbody tr").first
    passed, ur = first.locator("td:nth-child(3)"), first.locator("td:nth-child(5)")  # of the last seconds
    expect(ur).to_contain_text("0.", timeout=LONG_MS)
    lane = page.locator(".lane", has_text="payments")
    expect(lane.locator(".edge").first).to_contain_text("UR 0.", timeout=LONG_MS)
    page.get_by_label("Loss", exact=True).fill("0.3")
    expect(passed).to_have_text(re.compile(r"^\d\d %"), timeout=LONG_MS)
    assert watched.faults == []
    watched.close()


def test_an_ordinary_node_shows_no_link_and_a_source_of_spark_as_a_hop(
    browser: Browser, tmp_path: Path
) -> None:
    with HttpNode(tmp_path / "node") as node:
        assert isinstance(node, HttpNode)
        with headpond.sync.connect(node.url, name="spark host/7") as client:
            with client.producer("orders", refill=None) as producer:
                for _ in range(5):
                    producer.send(b"tea")
            client.admin.create_subscription("orders", "dishes")
            client.admin.advance("orders", "dishes", [3])
            with client.writer("orders/spark-query") as writer:
                writer.commit(4, [writer.stage("orders", pa.table({"value": [b"scone"]}))])
        watched = Watched(browser, node.http)
        page = watched.open("delivery")
        source = page.locator(".branch", has_text="dishes")
        expect(source).to_contain_text("Spark source")
        expect(source).to_contain_text("R 0.")
        expect(page.locator(".box", has_text="Spark sink")).to_contain_text("spark-query")
        with (
            headpond.sync.connect(node.url, name="spark host/7") as client,
            client.writer("orders/spark-query") as writer,
        ):
            rows = pa.table({"value": [b"scone"] * 900})
            writer.commit(5, [writer.stage("orders", rows)])
        sink = page.locator(".lane", has_text="Spark sink").locator(".edge").first
        expect(sink).to_have_text(re.compile(r"^[\d,]{2,}/s"))  # of messages: it is one segment
        expect(page.get_by_label("Loss")).to_have_count(0)
        page = watched.open("spark")
        row = page.get_by_role("region", name="Sources").locator("tbody tr")
        expect(row).to_contain_text("dishes")
        expect(row).to_contain_text("spark host/7")
        expect(page.get_by_role("region", name="Writers").locator("tbody tr")).to_contain_text("spark-query")
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_role("button", name="Delete the writer").click()
        expect(page.get_by_text("No query has written through this node")).to_be_visible()
        page = watched.open("subscriptions")
        expect(page.locator("tbody tr")).to_contain_text("a query")
        page.get_by_role("link", name="dishes").click()
        expect(page.get_by_text("A query of Spark moves the position: spark host/7.")).to_be_visible()
        watched.close()
        assert watched.faults == []
