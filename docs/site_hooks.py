"""Hooks of mkdocs: pages from outside docs/, links to them, the decisions, and no other hosts."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import headpond

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTED = (headpond.Client, headpond.Producer, headpond.Consumer, headpond.Writer)
PAGES = {"README.md": "overview.md"}
"""Other names, since docs/README.md is the first page of the site."""
OUTSIDE = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "examples")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\">\s]+)")


def on_config(config: Any) -> Any:
    """Puts every decision in the navigation, and leaves internal names out of the reference."""
    internal = "|".join(sorted(set.union(*(set(each.internal) for each in DOCUMENTED))))
    config.plugins["mkdocstrings"].config.handlers["python"]["options"]["filters"].append(f"!^({internal})$")
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    names = ["decisions/README.md", *(f"decisions/{path.name}" for path in decisions)]
    config.nav = [{"Decisions": names} if item == {"Decisions": "decisions/"} else item for item in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    for name in OUTSIDE:
        path = ROOT / name
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_file() and not {"made", "__pycache__"} & set(each.parts):
                repository = each.relative_to(ROOT).as_posix()
                files.append(File.generated(config, _uri(repository), abs_src_path=str(each)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns a link between files of the repository into the same link between pages of the site."""
    here = page.file.src_uri
    source = next((name for name, uri in PAGES.items() if uri == here), None)
    outside = source or (here if here.startswith("examples/") or (ROOT / here).is_file() else f"docs/{here}")
    source = f"docs/{here}" if here == "README.md" else outside

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        if (ROOT / target).is_dir():
            target += "/README.md"
        return f"]({posixpath.relpath(_uri(target), posixpath.dirname(here) or '.')}"

    return LINK.sub(moved, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    if found := LOADED.search(re.sub(r"<link rel=\"canonical\"[^>]*>", "", output)):
        raise PluginError(f"{page.file.src_uri} loads {found[1]} from another host")
    return output


def _uri(repository: str) -> str:
    return PAGES.get(repository, repository.removeprefix("docs/"))
