"""The console in a real browser: every page and every action, at two widths, against a real node under load."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.fire.real_node import wait_until
from tests.node.http.console import odd
from tests.node.http.console.browser import WAIT_MS, Watched, chromium
from tests.node.http.nodes import HttpNode

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

PAGES = (*odd.PATHS, "topics/empty/messages", "nowhere")
WITH_NUMBERS = ("", "topics", "topics/orders", "topics/orders/delivery", "subscriptions/orders/billing")
FIRST_ROW = "tbody tr:first-child"


def fill(http: httpx.Client) -> None:
    """Topics, subscriptions, a producer, a link and three dead messages."""
    for topic in ("orders", "empty"):
        http.post("/v1/topics", json={"topic": topic}).raise_for_status()
    columns = [{"name": "amount", "type": "int64"}]
    http.post("/v1/topics", json={"topic": "typed", "schema": columns}).raise_for_status()
    http.post("/v1/topics/typed/messages", json={"value": {"amount": 7}}).raise_for_status()
    for name, policy in (("billing", {}), ("flaky", {"max_attempts": 1})):
        body = {"subscription": name, "kind": "shared", "policy": policy}
        http.post("/v1/topics/orders/subscriptions", json=body).raise_for_status()
    http.post("/v1/topics/orders/producers", json={"producer": "till-1", "access": "single"}).raise_for_status()
    http.post("/v1/peers", json={"url": "headpond://127.0.0.1:1", "topics": ["orders"]}).raise_for_status()
    messages = [{"value": f'{{"order": {number}}}', "key": f"table-{number}"} for number in range(200)]
    http.post("/v1/topics/orders/messages", json={"messages": messages}).raise_for_status()
    flaky = "/v1/topics/orders/subscriptions/flaky"
    held = http.post(f"{flaky}/fetch?count=3&wait=5").json()["messages"]
    positions = {"positions": [each["position"] for each in held]}
    http.post(f"{flaky}/nack", json=positions).raise_for_status()
    http.delete(f"{flaky}/consumer").raise_for_status()
    odd.fill(http)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    """A node under load: a producer and a consumer never stop."""
    with HttpNode(tmp_path_factory.mktemp("console") / "node") as running:
        assert isinstance(running, HttpNode)
        over = threading.Event()
        with running.client() as http:
            fill(http)
            loader = threading.Thread(target=keep_busy, args=(running, over))
            loader.start()
            yield running
            over.set()
            loader.join()


def keep_busy(node: HttpNode, over: threading.Event) -> None:
    body = {"messages": [{"value": "busy"}] * 20}
    path = "/v1/topics/busy"
    while not over.wait(0.2):
        try:
            with node.client() as http:
                http.post(f"{path}/messages?producer=loader", json=body)
                http.post(f"{path}/subscriptions/reader/events?ack=sent", timeout=0.1)
        except httpx.HTTPError:
            continue  # the node restarts


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def watched(browser: Browser, node: HttpNode) -> Iterator[Watched]:
    found = Watched(browser, node.http)
    yield found
    found.close()


def press(page: Page, name: str, confirm: str = "") -> None:
    """Presses a button, and then the one in the dialog that it opens."""
    page.get_by_role("button", name=name, exact=True).first.click()
    if confirm:
        page.get_by_role("dialog").get_by_role("button", name=confirm, exact=True).click()
        expect(page.get_by_role("dialog")).to_have_count(0)


def open_every_dialog(watched: Watched) -> None:
    """Each fits in the window; when it is left, the keyboard is at its button again."""
    page = watched.page
    buttons = page.locator("main button[aria-haspopup=dialog]:enabled:visible")
    for name in dict.fromkeys(buttons.all_inner_texts()):
        button = buttons.filter(has_text=re.compile(rf"^{re.escape(name)}$")).first
        button.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        box = dialog.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= watched.width, name
        assert dialog.evaluate("each => each.scrollWidth <= each.clientWidth"), name
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_have_count(0)
        expect(button).to_be_focused()


@pytest.mark.parametrize(("width", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_every_page_and_dialog_shows_whatever_a_node_holds(
    browser: Browser, node: HttpNode, width: str, scheme: str
) -> None:
    watched = Watched(browser, node.http, width, scheme)
    for path in PAGES:
        page = watched.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= watched.width, path
        assert page.locator(".fault").count() == 0, path
        assert page.locator("main img, main script").count() == 0, path
        assert watched.check_access() == [], path
        open_every_dialog(watched)
    odd.make_huge(watched.page)
    for path in WITH_NUMBERS:
        page = watched.open(path)
        expect(page.locator(".stats, .badge").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= watched.width, path
    assert watched.faults == []
    watched.close()


def test_long_names_fit_into_plots(browser: Browser, node: HttpNode) -> None:
    watched = Watched(browser, node.http, "phone")
    page = watched.open(f"topics/{odd.TOPIC}/delivery")
    hop = page.locator("figcaption", has_text="Hop to s")
    expect(hop).to_be_visible(timeout=3 * WAIT_MS)  # the node reads itself every 10 s
    assert page.evaluate("document.documentElement.scrollWidth") <= watched.width
    watched.close()


def test_rates_and_the_ledger_are_live(watched: Watched) -> None:
    page = watched.open("topics/busy/delivery")
    expect(page.get_by_text("the ledger balances")).to_be_visible()
    expect(page.locator(".from .edge.w1, .from .edge.w2, .from .edge.w3").first).to_be_visible()
    page = watched.open()
    expect(page.locator(".stats dd").first).to_contain_text("/s")
    assert watched.faults == []


def test_a_search_is_the_nodes(watched: Watched) -> None:
    page = watched.open("topics")
    page.get_by_label("Search topics").fill("typ")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("typed")
    page = watched.open("dead")
    page.get_by_label("Search subscriptions and topics").fill("typ")
    expect(page.get_by_text("has that in its name")).to_be_visible()


def test_a_long_list_comes_in_pages(watched: Watched, node: HttpNode) -> None:
    with node.client() as http:
        for number in range(60):
            http.post("/v1/topics", json={"topic": f"many-{number:02}"}).raise_for_status()
    page = watched.open("topics")
    page.get_by_label("Search topics").fill("many-")
    expect(page.locator(FIRST_ROW)).to_contain_text("many-00")
    press(page, "Next")
    expect(page.locator(FIRST_ROW)).to_contain_text("many-50")
    press(page, "Previous")
    expect(page.locator(FIRST_ROW)).to_contain_text("many-00")
    assert watched.faults == []


def test_messages_are_found_by_entry_and_by_key_and_shown_in_every_form(watched: Watched) -> None:
    page = watched.open("topics/orders/messages")
    page.get_by_label("Entry, time, key or filter").fill("17")
    press(page, "Find")
    expect(page.locator("tbody tr").first).to_contain_text('{"order": 17}')
    press(page, "Older")
    expect(page.locator(FIRST_ROW)).to_contain_text('{"order": 0}')
    press(page, "Newer")
    expect(page.locator(FIRST_ROW)).to_contain_text('{"order": 50}')
    press(page, "Newest")
    expect(page.locator(FIRST_ROW)).to_contain_text('{"order": 150}')
    page.get_by_label("Find by").select_option("key")
    page.get_by_label("Entry, time, key or filter").fill("table-42")
    press(page, "Find")
    expect(page.locator("tbody tr")).to_have_count(1)
    press(page, "42")
    expect(page.locator("pre.value")).to_have_text('{"order": 42}')
    press(page, "JSON")
    expect(page.locator("pre.value")).to_have_text('{\n  "order": 42\n}')
    press(page, "hex")
    expect(page.locator("pre.value")).to_contain_text("7b 22 6f")
    press(page, "Copy as headpond command")
    said = "headpond peek orders --shard 0 --start 42 --count 1 --json"
    wait_until(lambda: page.evaluate("navigator.clipboard.readText()") == said)
    press(page, "Close")
    expect(page.get_by_role("button", name="42", exact=True)).to_be_focused()
    page = watched.open("topics/typed/messages?entry=0")
    press(page, "0")
    expect(page.locator(".panel").first).to_contain_text("amount")
    assert watched.faults == []


def test_a_message_is_published_and_followed(watched: Watched) -> None:
    page = watched.open("topics/empty/messages")
    press(page, "Follow")
    expect(page.get_by_text("New messages come first")).to_be_visible()
    press(page, "Publish")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill("two teas")
    dialog.get_by_label("Key").fill("table-4")
    dialog.get_by_label("Headers").fill("room: garden")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("status")).to_contain_text("stored as entry 0/")
    page.keyboard.press("Escape")
    expect(page.locator("tbody tr").first).to_contain_text("two teas")
    assert watched.faults == []


def test_a_message_of_markup_and_script_is_text(watched: Watched, node: HttpNode) -> None:
    with node.client() as http:
        read = f"/v1/topics/{odd.TOPIC}/messages?entry=0&count=50&shard="
        values = [[each["value"] for each in http.get(f"{read}{n}").json()["messages"]] for n in range(4)]
    (shard,) = [number for number, found in enumerate(values) if odd.EVIL in found]
    page = watched.open(f"topics/{odd.TOPIC}/messages?shard={shard}")
    page.get_by_role("row", name=odd.EVIL).first.get_by_role("button").click()
    expect(page.locator("pre.value")).to_have_text(odd.EVIL)
    expect(page.locator(".facts")).to_contain_text(odd.EVIL)
    assert page.locator("main img, main script").count() == 0
    press(page, "Publish again…")
    assert page.get_by_role("textbox", name="Value", exact=True).input_value() == odd.EVIL
    assert watched.faults == []


def test_a_mistake_in_a_form_is_named_and_a_second_try_succeeds(watched: Watched) -> None:
    page = watched.open("topics/empty/messages")
    press(page, "Publish")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Headers").fill("room garden")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The line room garden is no header.")
    dialog.get_by_label("Headers").fill("room: garden")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("status")).to_contain_text("stored as entry 0/")
    expect(dialog.get_by_role("alert")).to_have_count(0)
    page = watched.open("topics/typed/messages")
    press(page, "Publish")
    dialog.get_by_label("Value").fill("{amount: 7}")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The value is not JSON.")
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_label("Entry, time, key or filter").fill("table-4")
    press(page, "Find")
    expect(page.get_by_role("alert")).to_contain_text("An entry is a number, and table-4 is none.")
    page.get_by_label("Entry, time, key or filter").fill("1,000")
    press(page, "Find")
    expect(page.get_by_text("There is no message from here on")).to_be_visible()
    assert watched.faults == []


@pytest.mark.parametrize(("value", "key"), [(None, "tea"), ({"base64": "AAEC/w=="}, {"base64": "/wAB"})])
def test_a_message_that_is_published_again_is_the_same(
    watched: Watched, node: HttpNode, value: dict[str, str] | None, key: str | dict[str, str]
) -> None:
    with node.client() as http:
        topic = f"/v1/topics/again-{value is None}"
        http.post("/v1/topics", json={"topic": topic.rpartition("/")[2], "state": True}).raise_for_status()
        http.post(f"{topic}/messages", json={"value": value, "key": key}).raise_for_status()
        page = watched.open(f"{topic.removeprefix('/v1/')}/messages")
        press(page, "0")
        press(page, "Publish again…", "")
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Publish").click()
        expect(dialog.get_by_role("status")).to_contain_text("stored as entry 0/1")
        last = http.get(f"{topic}/messages?entry=1").json()["messages"][0]
    assert (last["value"], last["key"]) == (value, key)
    assert watched.faults == []


def test_a_page_that_was_opened_in_the_background_asks_when_it_is_shown(watched: Watched) -> None:
    page = watched.page
    page.add_init_script("window.behind = true; Object.defineProperty(document, 'hidden', {get: () => behind})")
    page.goto(f"{watched.url}/#/tokens")
    expect(page.get_by_role("heading", name="Tokens")).to_be_visible()
    expect(page.get_by_text("open node")).to_have_count(0)
    page.evaluate("behind = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_text("open node")).to_be_visible()
    expect(page.get_by_text("This node has no tokens")).to_be_visible()
    assert watched.faults == []


def test_a_subscription_is_paused_resumed_moved_and_deleted_each_after_a_question(watched: Watched) -> None:
    page = watched.open("topics/orders")
    press(page, "Create")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("extra")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_have_count(0)
    page = watched.open("subscriptions/orders/extra")
    press(page, "Pause")
    expect(dialog).to_contain_text("delivers nothing")
    dialog.get_by_role("button", name="Pause").click()
    expect(page.locator(".badge.warn")).to_have_text("paused")
    press(page, "Resume", "Resume")
    expect(page.locator(".badge.warn")).to_have_count(0)
    press(page, "Seek")
    dialog.get_by_label("Position").fill("150")
    dialog.get_by_role("button", name="Seek").click()
    expect(page.locator(".stats")).to_contain_text("Backlog50")
    press(page, "Delete")
    confirm = dialog.get_by_role("button", name="Delete the subscription")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type extra to confirm").fill("extra")
    confirm.click()
    expect(page.get_by_role("heading", name="Subscriptions")).to_be_visible()
    assert watched.faults == []


def test_dead_messages_say_why_and_are_redriven(watched: Watched) -> None:
    page = watched.open("dead")
    page.get_by_role("link", name="flaky").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_label("Choose 0/0").check()
    press(page, "Redrive 1", "Redrive")
    expect(page.locator("tbody tr")).to_have_count(2)
    press(page, "Redrive all", "Redrive")
    expect(page.get_by_text("Nothing is dead here.")).to_be_visible()
    assert watched.faults == []


def test_a_topic_is_created_changed_and_deleted(watched: Watched) -> None:
    page = watched.open("topics")
    press(page, "Create topic")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("short-lived")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="short-lived")).to_be_visible()
    row = page.locator("tr", has_text="hard_ttl")
    for typed, shown in (("150s", "150 s"), ("7d", "7 d")):
        row.get_by_role("button", name="Set").click()
        dialog.get_by_label("Value").fill(typed)
        dialog.get_by_role("button", name="Set").click()
        expect(row).to_contain_text(shown)
    row.get_by_role("button", name="Inherit").click()
    dialog.get_by_role("button", name="Inherit").click()
    expect(row.get_by_role("button", name="Inherit")).to_have_count(0)
    press(page, "Delete")
    dialog.get_by_label("Type short-lived to confirm").fill("short-lived")
    dialog.get_by_role("button", name="Delete the topic").click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    assert watched.faults == []


def test_a_producer_is_registered_and_deleted_and_a_link_made_and_removed(watched: Watched) -> None:
    page = watched.open("producers")
    press(page, "Register")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Topic").fill("empty")
    dialog.get_by_label("Name").fill("till-9")
    dialog.get_by_role("button", name="Register").click()
    row = page.locator("tr", has_text="till-9")
    row.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete the registration").click()
    expect(row).to_have_count(0)
    page = watched.open("links")
    press(page, "Link")
    dialog.get_by_label("Address").fill("headpond://127.0.0.1:2")
    dialog.get_by_label("Topics").fill("empty typed")
    dialog.get_by_role("button", name="Link").click()
    row = page.locator("tr", has_text="empty, typed")
    row.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove the link").click()
    expect(row).to_have_count(0)
    assert watched.faults == []


def test_the_keyboard_reaches_everything_and_the_theme_changes(watched: Watched) -> None:
    page = watched.open("producers")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    press(page, "Theme: auto")
    press(page, "Theme: light")
    expect(page.locator("body")).not_to_have_css("background-color", light)


def test_a_node_with_tokens_asks_for_one_and_the_console_has_its_rights(
    browser: Browser, tmp_path: Path
) -> None:
    with HttpNode(tmp_path / "node", guarded=True) as node:
        assert isinstance(node, HttpNode) and node.token is not None
        watched = Watched(browser, node.http)
        page = watched.page
        page.goto(node.http)
        page.get_by_label("Token").fill("hpd_000000000000_nonsense")
        press(page, "Sign in")
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Token").fill(node.token)
        press(page, "Sign in")
        expect(page.get_by_text("takes messages")).to_be_visible()
        page = watched.open("tokens")
        press(page, "Create token")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name").fill("reader")
        dialog.get_by_label("consume").check()
        dialog.get_by_role("button", name="Create").click()
        secret = dialog.locator("code").inner_text()
        press(page, "Done")
        assert "secret" not in page.evaluate("JSON.stringify(localStorage)")
        page.evaluate("secret => sessionStorage.setItem('headpond.token', secret)", secret)
        page.reload()
        expect(page.get_by_text("the token does not have the right to admin").first).to_be_visible()
        page.evaluate("token => sessionStorage.setItem('headpond.token', token)", node.token)
        page.reload()
        row = page.locator("tr", has_text="reader").filter(has_text="good")
        row.get_by_role("button", name="Revoke").click()
        dialog.get_by_role("button", name="Revoke").click()
        expect(page.get_by_role("region", name="Tokens").get_by_text("revoked")).to_be_visible()
        press(page, "Sign out")
        expect(page.get_by_label("Token")).to_be_visible()
        watched.close()


def test_the_first_token_is_shown_and_signs_the_tab_in(browser: Browser, tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node") as node:
        assert isinstance(node, HttpNode)
        watched = Watched(browser, node.http)
        page = watched.open("tokens")
        press(page, "Create token")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name").fill("me")
        expect(dialog).to_contain_text("the node refuses every client without a token")
        dialog.get_by_role("button", name="Create").click()
        secret = dialog.locator("code").inner_text()
        # Behind the dialog the page asks again.
        expect(page.get_by_text("You are me: admin on *.")).to_be_visible()
        assert dialog.locator("code").inner_text() == secret
        assert httpx.get(f"{node.http}/v1/topics").status_code == 401
        press(page, "Done")
        press(page, "Sign out")
        page.get_by_label("Token").fill(secret)
        press(page, "Sign in")
        row = page.get_by_role("region", name="Tokens").locator("tbody tr")
        row.get_by_role("button", name="Revoke").click()
        expect(dialog).to_contain_text("This console uses it")
        assert [fault for fault in watched.faults if "401" not in fault] == []  # signing out
        watched.close()


def test_what_is_typed_stays_while_the_page_asks_again(watched: Watched) -> None:
    page = watched.open("topics/orders")
    page.locator("tr", has_text="hard_ttl").get_by_role("button", name="Set").click()
    value = page.get_by_label("Value")
    value.fill("12h")
    for _ in range(2):
        with page.expect_response(re.compile("/v1/topics/orders$")):
            pass
    expect(value).to_have_value("12h")
    assert watched.faults == []


def test_the_overview_counts_what_is_dead_in_subscriptions_that_it_does_not_show(
    watched: Watched, node: HttpNode
) -> None:
    with node.client() as http:
        for number in range(12):
            body = {"subscription": f"behind-{number:02}", "kind": "shared"}
            http.post("/v1/topics/orders/subscriptions", json=body).raise_for_status()
        fails = "/v1/topics/quiet/subscriptions/fails"
        http.post("/v1/topics", json={"topic": "quiet"}).raise_for_status()
        strict = {"subscription": "fails", "kind": "shared", "policy": {"max_attempts": 1}}
        http.post("/v1/topics/quiet/subscriptions", json=strict).raise_for_status()
        http.post("/v1/topics/quiet/messages", json={"value": "no"}).raise_for_status()
        (held,) = http.post(f"{fails}/fetch?count=1&wait=5").json()["messages"]
        http.post(f"{fails}/nack", json={"positions": [held["position"]]}).raise_for_status()
        http.delete(f"{fails}/consumer").raise_for_status()
        wait_until(lambda: http.get(fails).json()["dead"] == 1)
        dead = sum(each["dead"] for each in http.get("/v1/subscriptions?dead=true").json())
    page = watched.open()
    region = page.get_by_role("region", name="Subscriptions")
    expect(region.locator("tbody tr")).to_have_count(10)
    expect(region).not_to_contain_text("fails")
    expect(page.get_by_role("link", name=f"{dead} dead")).to_be_visible()


def test_a_node_that_restarts_is_followed_again_on_every_kind_of_page(browser: Browser, node: HttpNode) -> None:
    paths = ("", "topics/empty/messages", "topics/busy/delivery", "subscriptions/orders/billing")
    each_watched = [Watched(browser, node.http) for _ in paths]
    pages = [watched.open(path) for watched, path in zip(each_watched, paths, strict=True)]
    press(pages[1], "Follow")
    expect(pages[1].get_by_text("New messages come first")).to_be_visible()

    def publish(text: str) -> None:
        with node.client() as http:
            http.post("/v1/topics/empty/messages", json={"value": text}).raise_for_status()
        expect(pages[1].locator(FIRST_ROW)).to_contain_text(text)

    publish("before the restart")
    expect(pages[0].locator(".stats").first).to_contain_text("Stored")
    node.kill()
    for page in pages:
        expect(page.get_by_text("The node does not answer").first).to_be_visible()
        expect(page.locator(".fault")).to_have_count(1)  # said once
        expect(page.get_by_text(re.compile("^(takes messages|live)$"))).to_have_count(0)
    for page in (pages[0], pages[2], pages[3]):
        expect(page.locator(".stats, .map").first).to_be_visible()  # what was known stays
    node.start()
    for page in pages:
        expect(page.get_by_text("The node does not answer")).to_have_count(0)
        expect(page.locator("main .fault")).to_have_count(0)
    publish("after the restart")
    for watched in each_watched:
        assert [fault for fault in watched.faults if "net::ERR" not in fault] == []
        watched.close()
