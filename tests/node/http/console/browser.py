"""A Chromium for the tests of the console, and a page that fails the test at any error in it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
WAIT_MS = 20_000
"""The longest wait for anything in a page; a busy machine makes browsers slow."""
SERIOUS = ("serious", "critical")
NO_CLUSTER = re.compile(r"/v1/cluster$")
"""A node that is no member of a cluster answers 404, which browsers report."""


expect.set_options(timeout=WAIT_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.fail("there is no Chromium on the PATH; `make browser` installs one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


class Watched:
    """A page of the console and the faults that it reported."""

    def __init__(self, browser: Browser, url: str, width: str = "desktop", scheme: str = "light") -> None:
        size = WIDTHS[width]
        self.width = size[0]
        self._context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
            permissions=["clipboard-read", "clipboard-write"],
        )
        self._context.set_default_timeout(WAIT_MS)
        self.page: Page = self._context.new_page()
        self.url = url
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on(
            "console",
            lambda said: (
                self.faults.append(f"{said.text} {said.location['url']}")
                if said.type == "error" and not NO_CLUSTER.search(said.location["url"])
                else None
            ),
        )
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog {dialog.message}"))

    def open(self, path: str = "") -> Page:
        """Shows a page of the console, and waits until its data is there."""
        self.page.goto(f"{self.url}/#/{path}")
        self.page.wait_for_selector("h1")
        expect(self.page.locator(".loading")).to_have_count(0, timeout=WAIT_MS)
        return self.page

    def check_access(self) -> list[str]:
        """What axe finds serious."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0].get('failureSummary', '')}"
            for each in found
            if each["impact"] in SERIOUS
        ]

    def scrolled_tables(self) -> list[str]:
        """The tables that are wider than their place."""
        found = "all => all.filter(each => each.scrollWidth > each.clientWidth).map(each => each.ariaLabel)"
        names: list[str] = self.page.locator(".table").evaluate_all(found)
        return names

    def close(self) -> None:
        self.page.unroute_all(behavior="ignoreErrors")  # an answer may be on its way
        self._context.close()
