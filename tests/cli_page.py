"""docs/cli.md, from the commands themselves: ``python -m tests.cli_page`` writes it."""

from __future__ import annotations

import textwrap
from enum import StrEnum
from typing import Any, get_args

import typer.main

from headpond.cli.app import SECTIONS, app
from tests.root import ROOT

WIDTH = 112
PAGE = ROOT / "docs" / "cli.md"
COMMON = {"url", "token", "as_json", "help", "install_completion", "show_completion"}
START = """\
# The command line

<!-- Generated from the commands: python -m tests.cli_page -->

`headpond COMMAND --help` explains every option. All commands take these:

| option | environment | meaning |
|---|---|---|
| `--url URL` | `HEADPOND_URL` | the node: `headpond://HOST:PORT[,HOST:PORT…]`, or `headponds://` for TLS |
| `--token TEXT` | `HEADPOND_TOKEN` | the [access token](access.md) |
| `--json` | | print JSON; [json.md](json.md) documents every field |

Without `--url` and `HEADPOND_URL`, a command uses the URL and the token of the current
[context](access.md#contexts), otherwise `headpond://127.0.0.1:7411`. Results go to stdout, everything else to
stderr. Commands that delete something ask first; without a terminal they need `--yes`.

| exit code | meaning |
|---|---|
| 0 | success; also when the reader of stdout closed the pipe (`\\| head`) |
| 1 | an error: stderr has `error: …` and `hint: …`, or one JSON object with `--json` |
| 2 | wrong usage |
| 3 | no verdict (`lab`), or only repeats and strangers (`spark audit`) |
| 130 | Ctrl-C |

`headpond --install-completion` makes bash, zsh or fish complete commands, options and names. The shell asks the
node for topics, subscriptions and the like, and offers none if the node does not answer within 0.3 s.
"""
MORE = {
    "node": "[settings.md](settings.md), [http.md](http.md), [access.md](access.md)",
    "produce": "[transport.md](transport.md), [several_nodes.md](several_nodes.md)",
    "consume": "[subscriptions.md](subscriptions.md), [several_nodes.md](several_nodes.md)",
    "topic": "[typed.md](typed.md), [state.md](state.md), [tenancy.md](tenancy.md)",
    "sub": "[subscriptions.md](subscriptions.md), [peers.md](peers.md#subscriptions-that-follow)",
    "dead": "[subscriptions.md](subscriptions.md)",
    "producer": "[tenancy.md](tenancy.md#producers)",
    "writer": "[staged_writes.md](staged_writes.md)",
    "refill": "[internals/refill.md](internals/refill.md)",
    "tenant": "[tenancy.md](tenancy.md)",
    "product": "[tenancy.md](tenancy.md)",
    "component": "[tenancy.md](tenancy.md)",
    "token": "[access.md](access.md)",
    "context": "[access.md](access.md#contexts)",
    "peer": "[peers.md](peers.md)",
    "cluster": "[cluster.md](cluster.md)",
    "log": "[access.md](access.md)",
    "ledger": "[ledger.md](ledger.md)",
    "spark": "[spark_pipelines.md](spark_pipelines.md), [spark_jobs.md](spark_jobs.md), [spark.md](spark.md)",
    "explain": "[pipes.md](pipes.md#predicting-a-route)",
    "lab": "[pipes.md](pipes.md#measuring-a-route)",
}
"""Pages with more about a command."""
SAME_AS = {"product": "tenant", "component": "tenant"}


def page() -> str:
    root: Any = typer.main.get_command(app)
    parts = [START]
    for title, entries in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [_part(name, root.commands[name]) for name in entries]
    return "\n".join(parts)


def _part(name: str, command: Any) -> str:
    if name in SAME_AS:
        return f"### {name}\n\n{command.help} The commands are those of [{SAME_AS[name]}](#{SAME_AS[name]}).\n"
    below = getattr(command, "commands", None)
    usages = (
        [_usage(f"{name} {word}", each) for word, each in below.items()] if below else [_usage(name, command)]
    )
    code = "\n".join(["```text", *usages, "```"])
    more = _wrapped(f"More: {MORE[name]}.") if name in MORE else ""
    texts = [f"- `{word}`: {_help(each)}" for word, each in below.items()] if below else [_help(command)]
    shown = "\n".join(_wrapped(text, indent="  " if below else "") for text in texts)
    return "\n\n".join(part for part in (f"### {name}", code, shown, more) if part) + "\n"


def _usage(words: str, command: Any) -> str:
    start = f"headpond {words}"
    arguments = [_argument(each) for each in command.params if each.param_type_name == "argument"]
    options = [_flag(each) for each in command.params if _is_own(each)]
    lines = [start]
    for word in (*arguments, *options):
        if len(lines[-1]) + len(word) >= WIDTH:
            lines.append(" " * len(start))
        lines[-1] += f" {word}"
    return "\n".join(lines)


def _argument(argument: Any) -> str:
    name = argument.metavar
    if argument.nargs == -1 and not name.endswith("…"):
        name += " …"
    return name if argument.required else f"[{name}]"


def _is_own(parameter: Any) -> bool:
    """Whether it is an option that not every command has."""
    return parameter.param_type_name == "option" and parameter.name not in COMMON and not parameter.hidden


def _flag(option: Any) -> str:
    if option.is_flag:
        text = "|".join([max(option.opts, key=len), *option.secondary_opts])
    else:
        value = option.metavar or "|".join(_choices(option.type_descriptor.annotation))
        text = f"{max(option.opts, key=len)} {value}{' …' if option.multiple else ''}"
    return text if option.required else f"[{text}]"


def _choices(kind: Any) -> list[str]:
    """The words of an enumeration, also of one in a list or beside None."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return [each.value for each in kind]
    return [word for inner in get_args(kind) for word in _choices(inner)]


def _help(command: Any) -> str:
    return " ".join(command.help.split())


def _wrapped(text: str, indent: str = "") -> str:
    return "\n".join(
        textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )


if __name__ == "__main__":
    PAGE.write_text(page())
