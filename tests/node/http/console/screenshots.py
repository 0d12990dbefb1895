"""Every page of the console while ``headpond up`` runs, light and dark, on a desktop and a phone.

``python -m tests.node.http.console.screenshots FOLDER [URL]`` writes one PNG per page, width and theme. Without
the URL of a console it runs ``headpond up --spark`` itself, for two minutes before the first picture; and then
FOLDER/odd has the pages of a node with names and texts that are odd.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.node.http.console import odd
from tests.node.http.console.browser import Watched, chromium
from tests.node.http.nodes import HttpNode

BUSY_S = 120.0
"""So long Spark takes to write, and the history to have something to show."""
LIVE_S = 7.0
"""Rates are known after two readings."""
HEIGHTS = {"desktop": 800, "phone": 844}
PAGES = {
    "overview": "",
    "topics": "topics",
    "topic": "topics/orders",
    "topic-typed": "topics/readings",
    "messages": "topics/orders/messages",
    "topic-delivery": "topics/orders/delivery",
    "subscriptions": "subscriptions",
    "subscription": "subscriptions/emails/mailer",
    "producers": "producers",
    "delivery": "delivery",
    "dead": "dead",
    "dead-of": "dead/emails/mailer",
    "spark": "spark",
    "links": "links",
    "tokens": "tokens",
}


@contextmanager
def console() -> Iterator[str]:
    """The address of the console of a node that is busy."""
    command = [
        sys.executable,
        "-m",
        "headpond",
        "up",
        "--spark",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        try:
            yield up.stdout.readline().strip()
        finally:
            up.terminate()


def take(url: str, folder: Path, pages: dict[str, str], whole: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for width, height in HEIGHTS.items():
            for scheme in ("light", "dark"):
                watched = Watched(browser, url, width, scheme)
                watched.page.set_viewport_size({"width": watched.width, "height": height})
                for name, path in pages.items():
                    watched.open(path)
                    watched.page.wait_for_timeout(LIVE_S * 1000)
                    watched.page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=whole)
                for fault in watched.faults:
                    print(f"{width} {scheme}: {fault}", file=sys.stderr)
                watched.close()


def main(folder: str, url: str = "") -> None:
    if url:
        take(url, Path(folder), PAGES)
        return
    with console() as found:
        time.sleep(BUSY_S)
        take(found, Path(folder), PAGES)
    with tempfile.TemporaryDirectory() as place, HttpNode(Path(place)) as node:
        assert isinstance(node, HttpNode)
        with node.client() as http:
            odd.fill(http)
        numbered = {f"{number:02}": path for number, path in enumerate(odd.PATHS)}
        take(node.http, Path(folder) / "odd", numbered)


if __name__ == "__main__":
    main(*sys.argv[1:])
