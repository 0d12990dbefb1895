"""docs/settings.md, errors.md and json.md, from the code: ``python -m tests.reference_pages`` writes them."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec

from headpond.broker import settings
from headpond.model import errors
from headpond.model.errors import HeadpondError
from headpond.node.http.status import status_of
from tests.json_page import json_page
from tests.root import ROOT

DOCS = ROOT / "docs"
GENERATED = "<!-- Generated from the code: python -m tests.reference_pages -->"

SETTINGS = f"""\
# A node's settings

{GENERATED}

A node needs no settings. Options of the command line override variables of the environment, variables
override the file (`headpond node --config FILE.toml`), and the file overrides the defaults. The node refuses to
start with an unknown key in the file or a wrong type, and names the key or the variable.

```toml
data = "/var/lib/headpond"
listen = "127.0.0.1:7411"
create_on_first_use = false

[limits]
connections = 2000
```

The variable of a key is `HEADPOND_` and the key in capitals; in a section, the name of the section stands
before the key. Its value is written as in the file, text without quotes. An empty variable counts as unset, and
the node ignores a variable of no setting:

```text
HEADPOND_DATA=/var/lib/headpond
HEADPOND_LISTEN=127.0.0.1:7411
HEADPOND_CREATE_ON_FIRST_USE=false
HEADPOND_LIMITS_CONNECTIONS=2000
HEADPOND_HTTP_NAMES=["queue.example.com"]
HEADPOND_TOPICS={{soft_ttl = "7d"}}
```
"""

ERRORS = f"""\
# Errors

{GENERATED}

Every error has a `code`, a `message`, a `hint` and `retryable`: whether the same call can succeed later without
a change. `headpond errors CODE` prints an entry. In Python each code is a class of `headpond.errors`; over HTTP
it has a status.

"""


def pages() -> dict[Path, str]:
    return {
        DOCS / "settings.md": settings_page(),
        DOCS / "errors.md": errors_page(),
        DOCS / "json.md": json_page(),
    }


# --- settings -----------------------------------------------------------------------------------------


def settings_page() -> str:
    parts = [f"{SETTINGS}\n", _table(settings.Settings, settings.Settings())]
    for name, group in (
        ("limits", settings.Limits()),
        ("http_limits", settings.HttpLimits()),
        ("log", settings.LogSettings()),
        ("staging", settings.StagingSettings()),
    ):
        about = inspect.cleandoc(type(group).__doc__ or "")
        parts.append(f"\n## `[{name}]`\n\n{_linked(about)}\n\n{_table(type(group), group)}")
    return "".join(parts)


def _table(kind: type[msgspec.Struct], defaults: msgspec.Struct) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    texts = field_docs(kind)
    for name in kind.__struct_fields__:
        value = getattr(defaults, name)
        if not isinstance(value, msgspec.Struct):
            rows.append(f"| `{name}` | {_shown(name, value)} | {_linked(texts[name])} |")
    return "\n".join(rows) + "\n"


def field_docs(kind: type[Any]) -> dict[str, str]:
    """The docstring behind each field of a class."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name) and isinstance(text.value, ast.Constant)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def _shown(name: str, value: Any) -> str:
    if value in ("", None, [], {}):
        return "none"
    if name.endswith(("bytes", "bytes_max", "bytes_min")):
        for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if value % size == 0:
                return f"{value // size} {unit}"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


def _linked(text: str) -> str:
    """Names of pages, such as access.md#tls, become links."""
    return re.sub(r"\b([a-z_]+\.md)(#[a-z-]+)?", r"[\1](\1\2)", text)


# --- errors -------------------------------------------------------------------------------------------


def errors_page() -> str:
    source = inspect.getsource(errors)
    parts = [ERRORS]
    for number, section in enumerate(re.split(r"^# --- (.*?) -+$", source, flags=re.MULTILINE)):
        if number % 2:
            parts.append(f"## {section[0].upper()}{section[1:]}\n\n")
            continue
        names = re.findall(r"^class (\w+)\(", section, flags=re.MULTILINE)
        kinds = [kind for name in names if _is_entry(kind := getattr(errors, name))]
        if kinds:
            rows = "\n".join(map(_row, kinds))
            parts.append(f"| code | meaning | what to do | retry | HTTP |\n|---|---|---|---|---|\n{rows}\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def _is_entry(kind: type[HeadpondError]) -> bool:
    return "code" in vars(kind)


def _row(kind: type[HeadpondError]) -> str:
    about = " ".join((kind.__doc__ or "").split()).replace("|", "\\|")
    hint = " ".join(kind.default_hint.split()).replace("|", "\\|")
    retry = "yes" if kind.retryable else "no"
    return f"| `{kind.code}` | {about} | {hint} | {retry} | {status_of(kind(''))} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
