"""The file of contexts: nodes by name, with URL, token and certificates. Only its owner can read it.

``$XDG_CONFIG_HOME/headpond/contexts.json`` (``~/.config`` without that), mode 0600. HEADPOND_CONTEXT names the
context to use, else ``headpond context use`` chose it. Flags and the environment override it. A context's token
goes only to its URL: a URL from elsewhere needs its token from elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headpond.model.address import DEFAULT_URL
from headpond.model.errors import BadContext

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FILE_BYTES_MAX = 1024 * 1024
TLS_NAMES = {"ca": "HEADPOND_CA", "cert": "HEADPOND_CERT", "key": "HEADPOND_KEY"}


@dataclass(frozen=True, slots=True)
class NodeContext:
    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str | None):
                raise BadContext(f"{name} is not text")

    def shown(self) -> dict[str, object]:
        """All fields, with the token's id instead of the token."""
        return {**asdict(self), "token": None if self.token is None else token_id(self.token)}


def token_id(token: str) -> str:
    """The part of a token that is no secret."""
    pieces = token.split("_", 2)
    return pieces[1] if len(pieces) == 3 else "…"


class Contexts:
    """The content of the file; ``save`` writes it."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        self.current = ""
        self.all: dict[str, NodeContext] = {}
        self._read()

    def _read(self) -> None:
        try:
            with open(self.path, "rb") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise BadContext(
                        f"{self.path} holds secrets and others may read it", hint=f"chmod 600 {self.path}"
                    )
                data = file.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            return
        except OSError as error:
            raise BadContext(
                f"cannot read {self.path}: {error.strerror}", hint="Correct it or remove it."
            ) from error
        try:
            found = json.loads(data)
            self.current = str(found.get("current", ""))
            self.all = {str(name): NodeContext(**each) for name, each in found["contexts"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, BadContext):  # whose text may hold a secret
            raise BadContext(
                f"{self.path} is not a file of contexts", hint="Correct it or remove it."
            ) from None

    def get(self, name: str) -> NodeContext:
        if name not in self.all:
            raise BadContext(f"there is no context {name[:80]!r}")
        return self.all[name]

    def add(self, name: str, context: NodeContext) -> None:
        if not NAME.fullmatch(name):
            raise BadContext(
                f"{name[:80]!r} cannot be a context's name", hint="Use letters, digits, . _ and -."
            )
        self.all[name] = context
        self.current = self.current or name

    def remove(self, name: str) -> None:
        self.get(name)
        del self.all[name]
        if self.current == name:
            self.current = ""

    def use(self, name: str) -> None:
        self.get(name)
        self.current = name

    def active(self) -> NodeContext | None:
        """The context that HEADPOND_CONTEXT names, else the one in use."""
        name = os.environ.get("HEADPOND_CONTEXT") or self.current
        return self.get(name) if name else None

    def save(self) -> None:
        """Replaces the file in one step; no other user can read it at any time."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        contexts = {name: asdict(context) for name, context in sorted(self.all.items())}
        data = json.dumps({"current": self.current, "contexts": contexts}, indent=2) + "\n"
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(data)
                file.flush()
                os.fsync(handle)
            os.replace(new, self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def tokens(self) -> dict[str, str]:
        """By URL."""
        return {context.url: context.token for context in self.all.values() if context.token is not None}


def service_in_use() -> NodeContext:
    """The service of a program that names none: HEADPOND_URL, else the active context, else this machine's.

    HEADPOND_TOKEN, HEADPOND_CA, HEADPOND_CERT and HEADPOND_KEY override what the context has.
    """
    url = os.environ.get("HEADPOND_URL")
    found = (None if url else Contexts().active()) or NodeContext(url or DEFAULT_URL)
    files = {name: os.environ.get(variable) or getattr(found, name) for name, variable in TLS_NAMES.items()}
    return NodeContext(found.url, os.environ.get("HEADPOND_TOKEN") or found.token, **files)


def default_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "headpond" / "contexts.json"
