"""The command line.

In reading order::

    app         the table of all commands
    command     what every command has in common: three options, one request, errors
    options     how options are declared, and those that several commands take
    output      text, tables, JSON, errors and exit codes
    logs        the log of a process: text, or JSON lines
    completion  names for the shell's TAB
    processes   nodes and other processes that run until Ctrl-C
    stdio       stdin and stdout beside the event loop
    resources   commands about topics, subscriptions, tokens and the like
    data        commands that move messages
    operate     commands to run, watch and examine a node
    up          ``headpond up``: a node with a console and programs that keep it busy
    spark       commands that run on Spark

A command's module is imported when the command is called, so that ``headpond --help`` answers at once.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs what the command line says. Ctrl-C ends it with 130, also while the commands are being loaded."""
    try:
        import typer

        from headpond.cli.app import command
        from headpond.cli.output import errors_reported, prepare_streams

        prepare_streams()
        try:
            with errors_reported(as_json="--json" in sys.argv):  # those of options and help
                command()(prog_name="headpond")
        except typer.Exit as ended:
            raise SystemExit(ended.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
