"""``headpond spark audit``: compares the messages sent with those received, one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url
from headpond.cli.output import EXIT_ERROR, print_json, reports_errors
from headpond.cli.spark.audit_report import WindowPrinter, note_totals, print_audit, print_ledger_audit
from headpond.cli.spark.job_options import JobMaster, Overwrite, progress_line

if TYPE_CHECKING:
    from headpond.spark.jobs.audit.audit import AuditResult
    from headpond.spark.jobs.audit.follow import FollowedAudit
    from headpond.spark.jobs.audit.ledger import LedgerAudit

EXIT_NOT_ONCE = 3
"""Every message arrived, but some more than once, or some arrived that nobody sent."""


def _option(name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text)


Sent = Annotated[str | None, typer.Argument(metavar="SENT", help="A topic, or a folder of Parquet files.")]
Received = Annotated[
    str | None, typer.Argument(metavar="RECEIVED", help="A topic, or a folder, to compare with it.")
]
SentLedger = Annotated[
    str | None,
    _option(
        "--sent-ledger",
        "TOPIC[@PRODUCER]",
        "Instead of SENT: the segments that producers announced, from that topic's ledger.",
    ),
]
By = Annotated[str, _option("--by", "WHAT", "What names a message: identity, id, or an expression of SQL.")]
SentBy = Annotated[
    str | None, _option("--sent-by", "WHAT", "The same in SENT, where it has another form there.")
]
Window = Annotated[str, _option("--window", "TIME", "The length of a time window.")]
Start = Annotated[str | None, _option("--start", "P", "Where to begin in SENT, if it is a topic.")]
End = Annotated[str | None, _option("--end", "P", "Where to end in SENT, if it is a topic.")]
ReceivedUrl = Annotated[str | None, _option("--received-url", "URL", "The node of RECEIVED, if another.")]
ReceivedToken = Annotated[str | None, _option("--received-token", "TEXT", "The access token of that node.")]
Follow = Annotated[
    bool,
    typer.Option("--follow", help="Continue over two growing topics, until Ctrl-C.", show_default=False),
]
Late = Annotated[str, _option("--late", "TIME", "With --follow: how long to wait for a message.")]
Every = Annotated[str, _option("--every", "TIME", "With --follow: the interval between looks.")]
Out = Annotated[Path | None, _option("--out", "DIR", "Where to write all results, with a picture.")]


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command; each way to audit takes those that apply to it."""

    by: str
    sent_by: str | None
    window: str
    start: str | None
    end: str | None
    late: str
    every: str
    out: Path | None
    overwrite: bool
    url: str
    token: str | None
    received_url: str | None
    received_token: str | None
    master: str

    def of(self, *names: str) -> dict[str, Any]:
        """The nodes and the master, and the options of these names."""
        always = ("url", "token", "received_url", "received_token", "master")
        return {name: getattr(self, name) for name in (*always, *names)}


@reports_errors
def audit(
    sent: Sent = None,
    received: Received = None,
    sent_ledger: SentLedger = None,
    by: By = "identity",
    sent_by: SentBy = None,
    window: Window = "1 minute",
    start: Start = None,
    end: End = None,
    received_url: ReceivedUrl = None,
    received_token: ReceivedToken = None,
    follow: Follow = False,
    late: Late = "1 minute",
    every: Every = "5 seconds",
    out: Out = None,
    overwrite: Overwrite = False,
    master: JobMaster = "local[*]",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Compare the messages sent with those received.

    Exits with 1 if a message is missing, else with 3 if one came more than once or was never sent.
    """
    options = AuditOptions(
        by=by,
        sent_by=sent_by,
        window=window,
        start=start,
        end=end,
        late=late,
        every=every,
        out=out,
        overwrite=overwrite,
        url=url,
        token=token,
        received_url=received_url,
        received_token=received_token,
        master=master,
    )
    result: AuditResult | FollowedAudit | LedgerAudit
    if sent_ledger is not None:
        if received is not None:
            raise typer.BadParameter("stands for SENT; name RECEIVED alone", param_hint="'--sent-ledger'")
        _refuse_options(options, "--sent-ledger", [("--follow", follow or None)])
        result = _audit_ledger(sent_ledger, sent, options, as_json=as_json)
    elif sent is None or received is None:
        raise typer.BadParameter("name the sent and the received side", param_hint="'SENT RECEIVED'")
    elif follow:
        _refuse_options(options, "--follow")
        result = _follow(sent, received, options, as_json=as_json)
    else:
        result = _audit_once(sent, received, options, as_json=as_json)
    if not result.complete:
        raise typer.Exit(EXIT_ERROR)
    if not result.clean:
        raise typer.Exit(EXIT_NOT_ONCE)


def _refuse_options(options: AuditOptions, way: str, more: Iterable[tuple[str, object]] = ()) -> None:
    """Refuses the options that only an audit of two whole sides has."""
    whole = [("--out", options.out), ("--start", options.start), ("--end", options.end)]
    for option, given in (*whole, ("--sent-by", options.sent_by), *more):
        if given is not None:
            raise typer.BadParameter(f"is not for {way}", param_hint=f"'{option}'")
    if options.by != "identity":
        raise typer.BadParameter(f"with {way} it is identity", param_hint="'--by'")


def _audit_once(sent: str, received: str, options: AuditOptions, *, as_json: bool) -> AuditResult:
    from headpond.spark.jobs.audit.audit import audit as run_audit

    given = options.of("by", "sent_by", "window", "start", "end", "out", "overwrite")
    with progress_line() as progress:
        result = run_audit(sent, received, **given, progress=progress)
    if as_json:
        print_json(result)
    else:
        print_audit(result)
    return result


def _audit_ledger(sent: str, received: str | None, options: AuditOptions, *, as_json: bool) -> LedgerAudit:
    from headpond.spark.jobs.audit.ledger import audit_ledger, parse_sent

    topic, producer = parse_sent(sent)
    with progress_line() as progress:
        result = audit_ledger(topic, received, producer=producer, **options.of(), progress=progress)
    if as_json:
        print_json(result)
    else:
        print_ledger_audit(result)
    return result


def _follow(sent: str, received: str, options: AuditOptions, *, as_json: bool) -> FollowedAudit:
    """Prints each batch until Ctrl-C, then the totals."""
    from headpond.spark.jobs.audit.follow import FollowedAudit, follow

    found = FollowedAudit()
    printer = WindowPrinter()

    def update(now: FollowedAudit) -> None:
        nonlocal found
        found = now
        if as_json:
            print_json(now)
        else:
            printer.print_new(now)

    with contextlib.suppress(KeyboardInterrupt):
        follow(sent, received, update=update, **options.of("window", "late", "every"))
    if not as_json:
        note_totals(found)
    return found
