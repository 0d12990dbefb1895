"""The command line: one file a noun.

Reading order: app (all commands), options (what every command takes), output (text, JSON, errors, exit codes),
completion and near (names that the node knows), stdio and lines (bytes in and out), then a file a command:
node, topic, produce, consume, inspect (with findings), errors, explain, lab (with lab_sweep), demo (with
node_process). What is heavy to import is imported inside the commands, so that ``penstock --help`` answers at
once.
"""

from penstock.cli.app import main

__all__ = ["main"]
