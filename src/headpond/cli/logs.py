"""The log of a process on stderr, for a person or for a program that collects logs."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Annotated, Any

from headpond.cli.options import option

LogFormat = StrEnum("LogFormat", ["text", "json"])
LogLevel = StrEnum("LogLevel", ["debug", "info", "warning", "error"])

FORMAT_HELP = "The log on stderr: text, or one JSON object per line. [default: text; json with --json]"
LEVEL_HELP = "The least important lines that the log has. [default: info]"
# A node reads the variables of these two with its other settings.
NodeLogFormat = Annotated[LogFormat | None, option("--log-format", "FORMAT", FORMAT_HELP)]
NodeLogLevel = Annotated[LogLevel | None, option("--log-level", "LEVEL", LEVEL_HELP)]
LogFormatOption = Annotated[
    LogFormat | None, option("--log-format", "FORMAT", FORMAT_HELP, envvar="HEADPOND_LOG_FORMAT")
]
LogLevelOption = Annotated[
    LogLevel | None, option("--log-level", "LEVEL", LEVEL_HELP, envvar="HEADPOND_LOG_LEVEL")
]

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
"""The attributes of every record, and uvicorn's; all others are fields that the caller gave."""


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from headpond.cli.output import iso_time, json_text

        line: dict[str, Any] = {
            "time": iso_time(round(record.created * 1e6)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        given = {name: str(value) for name, value in vars(record).items() if name not in _STANDARD}
        return json_text(line | {name: text for name, text in given.items() if name not in line})


def warnings_as_json() -> None:
    """A command that starts no log prints its warnings as JSON, as it does its error."""
    assert logging.lastResort is not None
    logging.lastResort.setFormatter(JsonLines())


def start_log(form: str | None, level: str | None, *, as_json: bool = False) -> None:
    """``as_json`` is the form if none is given. The loggers of libraries write the same lines."""
    handler = logging.StreamHandler()
    if form == LogFormat.json or (form is None and as_json):
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=(level or LogLevel.info).upper(), handlers=[handler])
    logging.captureWarnings(True)
