"""``headpond writer list|show|delete``: writers of staged batches, and their stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headpond.cli.ask import ask, confirm
from headpond.cli.completion import writers
from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url, Yes
from headpond.cli.output import iso_time, print_fields, print_json, print_result, print_table, reports_errors
from headpond.shapes.resources import writer_object

if TYPE_CHECKING:
    from headpond.wire.control.staging import StageInfo, WriterInfo

writer_app = typer.Typer(
    help="List and delete writers of staged batches.", no_args_is_help=True, rich_markup_mode=None
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the writer.", autocompletion=writers)]


@writer_app.command("list")
@reports_errors
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """List writers with their last batch and their staged data."""
    infos = ask(url, token, lambda admin: admin.list_writers())
    if as_json:
        print_json([writer_object(info) for info in infos])
        return
    rows = [
        (info.writer, info.batch, info.batches, info.rows, info.stages, info.staged_bytes, _committed(info))
        for info in infos
    ]
    print_table(("WRITER", "BATCH", "BATCHES", "ROWS", "STAGES", "STAGED BYTES", "COMMITTED"), rows)


@writer_app.command()
@reports_errors
def show(writer: Name, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Show a writer: its last batch, its counts, its topics and its stages."""
    info = ask(url, token, lambda admin: admin.show_writer(writer))
    if as_json:
        print_json(writer_object(info, whole=True))
        return
    print_fields(
        [
            ("writer", info.writer),
            ("batch", info.batch),
            ("committed", _committed(info)),
            ("publishing", "yes" if info.publishing else "no"),
            ("holder", info.holder or None),
            ("batches", info.batches),
            ("rows", info.rows),
            ("bytes", info.size_bytes),
            ("topics", ", ".join(info.topics) or None),
            ("stages", info.stages),
            ("staged bytes", info.staged_bytes),
        ]
    )
    if info.stage_list:
        print()
        stages = [
            (stage.stage.hex(), stage.topic, stage.rows, "yes" if stage.finished else "no", _opened(stage))
            for stage in info.stage_list
        ]
        print_table(("STAGE", "TOPIC", "ROWS", "FINISHED", "OPENED"), stages)


@writer_app.command()
@reports_errors
def delete(
    writer: Name,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Delete a writer and its stages. Its messages stay, but a batch that is sent again is published again."""
    if not yes:
        confirm(f"Delete writer {writer} with its stages? A batch that it sends again is published again.")
    stages = ask(url, token, lambda admin: admin.delete_writer(writer))
    print_result(
        {"deleted": writer, "stages": stages}, f"deleted {writer}, with {stages} stages", as_json=as_json
    )


def _committed(info: WriterInfo) -> str | None:
    return iso_time(info.committed_at_us) if info.committed_at_us is not None else None


def _opened(stage: StageInfo) -> str:
    return iso_time(stage.opened_at_us)
