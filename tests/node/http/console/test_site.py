"""The files of the console: served to anybody, with a strict policy, and from this node alone."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import httpx

from headpond.node.http.console.site import FILES, FOLDER
from tests.node.http.nodes import HttpNode
from tests.test_deploy import parsed

SCRIPTS = [path for path in FOLDER.rglob("*.js") if "vendor" not in path.parts]


def test_the_page_allows_no_script_style_or_connection_but_its_own(http: httpx.Client) -> None:
    answer = http.get("/")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    policy = dict(each.strip().split(" ", 1) for each in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[each] for each in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_browser_that_has_a_file_is_answered_that_it_did_not_change(http: httpx.Client) -> None:
    for path in ("/", *(f"/console/{name}" for name in FILES)):
        answer = http.get(path)
        assert answer.status_code == 200, path
        again = http.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), path


def test_only_its_own_files_are_served(http: httpx.Client) -> None:
    for path in ("nothing.js", "../site.py", "..%2fsite.py", "vendor/README.md", "%2e%2e/__init__.py"):
        assert http.get(f"/console/{path}").status_code == 404, path


def test_a_node_with_tokens_shows_the_page_and_no_data(tmp_path: Path) -> None:
    with HttpNode(tmp_path / "node", guarded=True) as node, httpx.Client(base_url=node.http) as http:
        assert http.get("/").status_code == 200
        assert http.get("/console/app.js").status_code == 200
        assert http.get("/v1/topics").status_code == 401


def test_the_page_of_another_site_does_not_get_it(http: httpx.Client) -> None:
    assert http.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert http.get("/console/app.js", headers={"Sec-Fetch-Site": "same-site"}).status_code == 403


def test_another_site_may_link_to_it_but_not_frame_it_or_link_elsewhere(http: httpx.Client) -> None:
    def status(path: str, dest: str, method: str = "GET", **more: str) -> int:
        shown = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": dest, **more}
        return http.request(method, path, headers=shown).status_code

    assert status("/", "document") == 200
    assert [status("/", dest) for dest in ("iframe", "frame", "object", "embed")] == [403] * 4
    assert status("/", "document", Host="evil.example") == 403
    assert status("/", "document", "POST") == status("/v1/topics", "document") == 403
    assert status("/console/app.js", "document") == status("/metrics", "document") == 403


def test_no_script_of_the_console_makes_markup_or_code_from_data() -> None:
    unsafe = re.compile(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|dangerously")
    assert [path.name for path in SCRIPTS if unsafe.search(path.read_text())] == []


def test_every_file_that_a_script_imports_is_there_and_local() -> None:
    for path in SCRIPTS:
        for target in re.findall(r'from "([^"]+)"', path.read_text()):
            assert target.startswith(".") and (path.parent / target).is_file(), f"{path.name}: {target}"


def test_every_command_that_a_page_shows_is_one() -> None:
    part = r"\$\{[^}]*\}"
    shown = [
        re.sub(part, "7", command)
        for path in SCRIPTS
        for command in re.findall(rf"\bheadpond ([a-z]+ (?:{part}|[^`\"<$])*)", path.read_text())
    ]
    assert len(shown) > 15
    for command in shown:
        if not command.endswith("--help"):
            parsed(shlex.split(command))


def test_every_library_has_its_licence() -> None:
    vendor = FOLDER / "vendor"
    table = (vendor / "README.md").read_text()
    for path in vendor.glob("*.*s"):
        assert f"`{path.name}`" in table, path.name
    for licence in re.findall(r"`(LICENSE-\w+)`", table):
        assert (vendor / licence).stat().st_size > 500
