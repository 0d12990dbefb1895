"""The rules of the project, as tests."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest

from headpond.broker.settings import HttpLimits, Limits, LogSettings, Settings, StagingSettings
from tests.root import ROOT

SOURCES = sorted((ROOT / "src").rglob("*.py"))
PACKAGE = ROOT / "src" / "headpond"
PACKAGES = sorted(PACKAGE.rglob("__init__.py"))
PURE = (
    *("model", "wire", "broker", "producer", "pipes/calculus", "pipes/machines", "storage/log"),
    *("cluster/records", "cluster/apply", "cluster/outbox", "cluster/copy", "cluster/groups"),
)
SHELLS = {"os_disk", "memory_disk", "folder_lock"}
"""The files of ``storage`` that touch the machine, and the twin of one."""
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".cfg", ".sh", ".yml", ".yaml", ""}
TEXT_SUFFIXES |= {".conf", ".dockerignore", ".env", ".service", ".tpl"}
FOLDERS = ("src", "tests", "docs", "bench", "deploy", "examples", "requirements", ".ci")
MADE = {"corpus", "__pycache__", ".git", "made"}
"""Folders that running the project makes."""
# Written in pieces, so that this file passes its own test.
MACHINE_PATH = re.compile(r"/(?:home|Users|root|work|opt)/[A-Za-z0-9_.-]")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def project_texts() -> list[Path]:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [
        path
        for path in [*ROOT.glob("*"), *inside]
        if path.is_file() and path.suffix in TEXT_SUFFIXES and not MADE & set(path.parts)
    ]


def requirement_name(text: str) -> str:
    return re.split(r"[<>=!~\[; ]", text, maxsplit=1)[0].lower()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "a module starts with a docstring"


def test_every_folder_with_code_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_no_modules_import_each_other() -> None:
    """Imports for the type checker count too."""
    graph = grimp.build_graph("headpond", cache_dir=None)
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()


def test_no_module_is_a_drawer_for_everything() -> None:
    assert [path for path in SOURCES if path.stem in ("utils", "util", "helpers", "helper", "misc")] == []


def test_no_file_names_a_place_on_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in project_texts()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


def test_the_changelog_starts_with_the_projects_version() -> None:
    versions = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == project()["project"]["version"]


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line)] == []


def test_constraints_pin_every_dependency_of_the_project_and_its_tools() -> None:
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    pinned = {requirement_name(line) for line in lines}
    extras = project()["project"]["optional-dependencies"]
    required = [*project()["project"]["dependencies"], *(each for extra in extras.values() for each in extra)]
    wanted = {requirement_name(each) for each in required}
    wanted |= {requirement_name(each) for each in project()["dependency-groups"]["dev"]}
    site = (ROOT / "requirements" / "docs.txt").read_text().splitlines()
    wanted |= {requirement_name(each) for each in site if not each.startswith("#")}
    assert wanted - pinned == set()


def private_imports(path: Path) -> set[str]:
    """Packages of others from which a file imports a module or a name that begins with ``_``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        module = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
        for name in names:
            parts = [*module, *name.split(".")]
            if any(re.match("_[a-z]", part) for part in parts) and parts[0] not in sys.stdlib_module_names:
                found.add(parts[0])
    return found


def test_a_package_whose_internals_are_imported_has_an_upper_bound() -> None:
    extras = project()["project"]["optional-dependencies"].values()
    wanted = [*project()["project"]["dependencies"], *(each for extra in extras for each in extra)]
    bounded = {requirement_name(each) for each in wanted if "<" in each}
    found = set[str]().union(*map(private_imports, SOURCES))
    assert "typer" in found, "the test finds what there is"
    assert found - bounded == set()


def test_the_dev_group_is_the_same_for_an_old_pip() -> None:
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    assert names == project()["dependency-groups"]["dev"]


def test_everything_pure_is_under_the_contract_that_keeps_it_pure() -> None:
    contracts = project()["tool"]["importlinter"]["contracts"]
    (pure,) = [contract for contract in contracts if contract["id"] == "pure"]
    formats = {path.stem for path in PACKAGE.glob("storage/*.py")} - SHELLS - {"__init__"}
    wanted = [*(name.replace("/", ".") for name in PURE), *(f"storage.{name}" for name in formats)]
    assert sorted(pure["source_modules"]) == sorted(f"headpond.{name}" for name in wanted)


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_a_package_names_its_files_and_its_packages(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    parts = [each for each in path.parent.iterdir() if each.suffix == ".py" or (each / "__init__.py").is_file()]
    names = {each.stem for each in parts} - {"__init__", "__main__"}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_documents_links_lead_to_files_and_headings() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in project_texts()
        if path.suffix == ".md"
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text())
        for name, _, anchor in [target.partition("#")]
        for page in [path.parent / name if name else path]
        if not page.is_file() or (anchor and anchor not in anchors(page))
    ]
    assert broken == []


def test_the_documents_name_files_that_exist() -> None:
    """Python files and folders in backticks, such as ``wire/frame.py`` and ``broker/``."""
    wanted = [
        (path, name)
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for name in re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", path.read_text())
    ]
    bases = (ROOT, ROOT / "src", PACKAGE, ROOT / "examples")
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in wanted
        if not any((base / name).exists() for base in bases)
    ]
    assert missing == []


def test_every_setting_of_a_node_is_documented() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    structs = (Settings, Limits, HttpLimits, LogSettings, StagingSettings)
    names = [name for struct in structs for name in struct.__struct_fields__]
    sections = {"limits", "http_limits", "log", "staging"}
    missing = [name for name in names if f"| `{name}` |" not in text and name not in sections]
    assert missing == []
    assert all(f"`[{section}]`" in text for section in sections)
