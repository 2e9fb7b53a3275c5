"""Start of a long-running process: log lines on standard error, and the wait for its store."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

from penstock import clock
from penstock.errors import DiskFull, StoreReadOnly, StoreUnavailable
from penstock.vocabulary import escape_control

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s%(job)s: %(message)s"
TRACE_MARK = "| "
"""Start of each line of a traceback in the log."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_REPEATED_EVERY_S = 30.0

T = TypeVar("T")
log = logging.getLogger("penstock.worker")


def _quoted(trace: str) -> str:
    """Mark each line of a traceback: a message with line breaks cannot look like a line of the log."""
    return "\n".join(TRACE_MARK + escape_control(line) for line in trace.split("\n"))


class JobLogFormatter(logging.Formatter):
    """Adds the job's id to a line. File names in a message can neither drive the terminal nor forge lines."""

    def format(self, record: logging.LogRecord) -> str:
        record.job = f" {record.job_id}" if hasattr(record, "job_id") else ""
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - named by the library
        return escape_control(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - named by the library
        return _quoted(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - named by the library
        return _quoted(super().formatStack(stack_info))


class JsonLogFormatter(logging.Formatter):
    """Makes one JSON object of a record, on one line, with a traceback inside.

    ``job_fields`` of a record, from ``extra``, are fields of the object.
    """

    def format(self, record: logging.LogRecord) -> str:
        import json  # all three loaded for this format only

        from penstock import traces
        from penstock.queue.transitions import printable

        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            "trace_id": traces.trace_id(),
            **getattr(record, "job_fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = record.exc_info[0].__name__
            fields["traceback"] = self.formatException(record.exc_info)
        kept = {name: printable(str(value)) for name, value in fields.items() if value is not None}
        return json.dumps(kept)


def log_formatter(log_format: str) -> logging.Formatter:
    """The formatter for a value of the setting ``log_format``."""
    return JsonLogFormatter() if log_format == "json" else JobLogFormatter(_LOG_FORMAT)


def log_to_stderr(level: int, log_format: str) -> None:
    """Log to standard error as text or JSON, unless the application has set up logging itself."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(log_format))
    logging.basicConfig(level=level, handlers=[handler])
    threading.excepthook = _log_end_of_thread


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Log the error that ended a thread, as a line of the log like any other."""
    if ended.exc_type is SystemExit:
        return
    name = ended.thread.name if ended.thread is not None else "a thread"
    error = ended.exc_value or ended.exc_type()
    logging.getLogger("penstock").error("%s ended by an error", name, exc_info=error)


class _Stopped(BaseException):
    """A stop signal during the wait."""


def once_reachable(start: Callable[[], T]) -> T | None:
    """Call ``start`` until the store can be reached. Returns None after a stop signal."""
    pause, logged_at = _FIRST_PAUSE_S, None
    try:
        with _stoppable():
            while True:
                try:
                    return start()
                except (StoreUnavailable, StoreReadOnly, DiskFull) as error:
                    now = clock.elapsed_s()
                    if logged_at is None or now - logged_at >= _REPEATED_EVERY_S:
                        log.warning("%s (%s); waiting for it. %s", error.message, error.code, error.remedy)
                        logged_at = now
                threading.Event().wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
    except _Stopped:
        log.info("stopped by a signal before the store was reachable")
        return None


@contextmanager
def _stoppable() -> Iterator[None]:
    def stop(_number: int, _frame: object) -> NoReturn:
        raise _Stopped

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
