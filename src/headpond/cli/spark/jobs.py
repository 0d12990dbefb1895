"""``headpond spark archive|compact|replay|reshard|prepare``, and the group of all Spark commands."""

from __future__ import annotations

import shlex
from typing import Annotated

import msgspec

from headpond.cli.command import Node, command, group
from headpond.cli.options import TopicArgument, argument, flag, option, wrong_use
from headpond.cli.output import Output, note, picked, print_fields, progress_line
from headpond.cli.spark.audit import STARTING, JobMaster, audit
from headpond.cli.spark.pipeline import check, run

FILE_BYTES = 256 * 1024 * 1024
BatchEntries = Annotated[int, option("--batch-entries", "N", "Entries of a shard per batch.", min=1)]
Archive = Annotated[str, argument("DIR", "The archive's folder.")]
EVERY_HELP = "With --follow: the interval between batches."
BATCH_BYTES_HELP = "About how many bytes to read at a time."


def _report(
    output: Output, result: msgspec.Struct, names: str, text: str, *, ok: bool = True, **other: object
) -> None:
    """Prints a result as JSON, or some of its fields and ``other`` ones for a person, who also gets a note."""

    def report() -> None:
        print_fields(picked({**msgspec.structs.asdict(result), **other}, names))
        note(text)

    output.show(result, report, ok=ok)


@command()
def archive(
    node: Node,
    topic: TopicArgument,
    folder: Archive,
    follow: Annotated[bool, flag("--follow", "Continue with new messages, until Ctrl-C.")] = False,
    every: Annotated[str, option("--every", "TIME", EVERY_HELP)] = "10 seconds",
    batch_bytes: Annotated[int, option("--batch-bytes", "N", BATCH_BYTES_HELP, min=1)] = FILE_BYTES,
    compact: Annotated[bool, flag("--compact", "Compact the archive afterwards.")] = False,
    master: JobMaster = "local[*]",
) -> None:
    """Add the messages of a topic to its archive.

    A later run adds new messages, and completes a run that was killed.
    """
    from headpond.spark.jobs.archive import archive as run_archive
    from headpond.spark.jobs.archive import compact as run_compact

    if follow and compact:
        raise wrong_use("--compact", "does not work with --follow")
    with progress_line(STARTING) as progress:
        result = run_archive(
            topic,
            folder,
            follow=follow,
            every=every,
            batch_bytes=batch_bytes,
            url=node.url,
            token=node.token,
            master=master,
            progress=progress,
        )
        if compact:
            run_compact(folder, master=master, progress=progress)
    text = f"{result.rows:,} messages in {result.batches:,} batches, {result.seconds:.1f} s"
    _report(node, result, "topic archive=folder added=rows files", text)


@command()
def compact(
    output: Output,
    folder: Archive,
    target_bytes: Annotated[
        int, option("--target-bytes", "N", "About how large the files become.", min=1)
    ] = FILE_BYTES,
    master: JobMaster = "local[*]",
) -> None:
    """Join the files of each day of an archive.

    Readers see the old files of a day or the new ones, never both or neither.
    """
    from headpond.spark.jobs.archive import compact as run_compact

    with progress_line(STARTING) as progress:
        result = run_compact(folder, target_bytes=target_bytes, master=master, progress=progress)
    names = "archive=folder days files_before files_after bytes_before bytes_after"
    _report(output, result, names, f"{result.rows:,} rows rewritten in {result.seconds:.1f} s")


# --- to a topic -------------------------------------------------------------------------------------

SOURCE_HELP = "A topic, an archive, or another folder of Parquet files."
START_HELP = "Where to begin in a topic: an entry, a time."
WHERE_HELP = "Write only rows for which this is true."
TO_URL_HELP = "The node to write to, if it is another one."


@command()
def replay(
    node: Node,
    source: Annotated[str, argument("SOURCE", SOURCE_HELP)],
    target: Annotated[str, argument("TARGET", "The topic to write to.")],
    start: Annotated[str | None, option("--start", "P", START_HELP)] = None,
    end: Annotated[str | None, option("--end", "P", "Where to end in a topic: an entry, a time.")] = None,
    where: Annotated[str | None, option("--where", "SQL", WHERE_HELP)] = None,
    batch_entries: BatchEntries = 500_000,
    to_url: Annotated[str | None, option("--to-url", "URL", TO_URL_HELP)] = None,
    to_token: Annotated[str | None, option("--to-token", "TEXT", "The access token of that node.")] = None,
    master: JobMaster = "local[*]",
) -> None:
    """Write the messages of a source to a topic.

    A later run, after a kill or on a topic that grew, writes only the rest.
    """
    from headpond.spark.jobs.replay import replay as run_replay

    with progress_line(STARTING) as progress:
        result = run_replay(
            source,
            target,
            start=start,
            end=end,
            where=where,
            batch_entries=batch_entries,
            url=node.url,
            token=node.token,
            to_url=to_url,
            to_token=to_token,
            master=master,
            progress=progress,
        )
    text = f"{result.rows:,} messages in {result.batches:,} batches, {result.seconds:.1f} s"
    _report(node, result, "source target written=rows there_before=there", text)


@command()
def reshard(
    node: Node,
    source: TopicArgument,
    target: Annotated[str, argument("NEW", "The new topic; created if it does not exist.")],
    shards: Annotated[int, option("--shards", "N", "Its shards, a power of two.", min=1)],
    batch_entries: BatchEntries = 500_000,
    master: JobMaster = "local[*]",
) -> None:
    """Copy a topic into a new one with another number of shards, and compare the two.

    Exits with 1 unless every message is there once and in order.
    """
    from headpond.spark.jobs.reshard import reshard as run_reshard

    with progress_line(STARTING) as progress:
        result = run_reshard(
            source,
            target,
            shards,
            batch_entries=batch_entries,
            url=node.url,
            token=node.token,
            master=master,
            progress=progress,
        )
    _report(
        node,
        result,
        "source target written=rows there_before=there compared=sent missing repeated from_elsewhere=strangers "
        "in_order verified",
        f"{result.sent:,} messages in {result.seconds:.1f} s",
        source=f"{result.source} ({result.shards_before} shards)",
        target=f"{result.target} ({result.shards} shards)",
        ok=result.verified,
    )


# --- on this machine --------------------------------------------------------------------------------


@command()
def prepare(
    output: Output,
    again: Annotated[bool, flag("--again", "Replace the file if it is there.")] = False,
) -> None:
    """Make Spark start faster on this machine, once for each Java and Spark.

    Runs a session and stores the classes that it loads in a file of about 200 MB, which later sessions map into
    memory. Takes a minute or two of CPU. Nothing depends on the file; you can remove it at any time.
    """
    from headpond.spark.start.class_cache import prepare as run_prepare

    with progress_line(STARTING) as progress:
        result = run_prepare(again=again, progress=progress)
    notes = [f"removed {folder}, which no session can use" for folder in result.removed]
    made = f"made in {result.seconds:.0f} s; sessions on this Java and Spark use it from now on"
    notes.append(made if result.made else "it was there, and sessions use it; --again replaces it")
    notes.append(f"to remove it: rm -r {shlex.quote(result.folder)}")
    java = f"{result.java} ({result.java_version})"
    _report(output, result, "folder bytes classes java spark", "\n".join(notes), java=java)


spark_app = group("Pipelines and jobs on Spark.")
for job in (check, run, audit, archive, compact, replay, reshard, prepare):
    spark_app.command()(job)
