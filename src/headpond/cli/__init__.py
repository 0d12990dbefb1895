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

__all__ = ["main"]


def main() -> None:
    """Runs what the command line says. Ctrl-C ends it with 130, also while the commands are being loaded."""
    try:
        from headpond.cli.app import command
        from headpond.cli.output import fill_closed_streams

        fill_closed_streams()
        command()(prog_name="headpond")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
