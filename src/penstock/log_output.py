"""Log lines on standard error, and text that cannot drive a terminal."""

from __future__ import annotations

import logging
from typing import Any

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s%(job)s: %(message)s"


def escape_control(text: str) -> str:
    """Replace every character that is not printable by its escape, such as ``\\n`` or ``\\x1b``."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class JobLogFormatter(logging.Formatter):
    """Adds the job's id to a line. File names in a message can neither drive the terminal nor forge lines."""

    def format(self, record: logging.LogRecord) -> str:
        record.job = f" {record.job_id}" if hasattr(record, "job_id") else ""
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - named by the library
        return escape_control(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - named by the library
        return "\n".join(map(escape_control, super().formatException(ei).split("\n")))


def log_to_stderr(level: int) -> None:
    """Log to standard error, unless the application has set up logging itself."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JobLogFormatter(LOG_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
