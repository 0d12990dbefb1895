"""The command line: one file a noun.

Reading order: this file (the way in), app (all commands), options (what every command takes), output (text,
JSON, errors, exit codes), completion and near (names that the node knows), stdio and lines (bytes in and out),
then a file a command: node, topic, produce, consume, inspect (with findings), errors, explain, lab (with
lab_sweep), demo (with node_process). What is heavy to import is imported inside the commands, so that
``headpond --help`` answers at once.
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
