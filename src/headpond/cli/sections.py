"""The help of all commands, in sections: by what they are about, and each in one line."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from headpond.cli.output import pipe_may_close

MESSAGES = "Messages"
TOPICS = "Topics and who uses them"
ACCESS = "Access and other nodes"
LOOKING = "Looking into it"
SPARK = "Spark"
PIPES = "Pipes, and a demonstration"
ORDER = (MESSAGES, TOPICS, ACCESS, LOOKING, SPARK, PIPES)


class Sections(TyperGroup):
    """Lists commands under the section that each was added with: ``rich_help_panel``, here in plain text."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with pipe_may_close():  # help and the version are printed here
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with pipe_may_close():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in ORDER}
        width = max(map(len, self.commands))
        for name, command in self.commands.items():
            line = command.get_short_help_str(formatter.width - width - 6)
            sections[str(getattr(command, "rich_help_panel", None))].append((name.ljust(width), line))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
