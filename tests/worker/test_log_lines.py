"""Log lines as JSON objects."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import DiskFull, LeaseLost, StoreUnavailable
from penstock.handlers.context import Context
from penstock.process_start import log_formatter
from tests.handlers.conftest import run_all

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the loggers of Penstock write as JSON."""
    stream, log = io.StringIO(), logging.getLogger("penstock")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_formatter("json"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield stream
    log.removeHandler(handler)
    log.setLevel(level)


def objects(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_lines_of_a_job_name_it(lines: io.StringIO):
    with Penstock("memory://") as app:

        @app.function(max_retries=0)
        def grind(payload: dict[str, Any], context: Context) -> None:
            context.log.info("grinding\n%s", "\x1b[31mred")
            raise ValueError("a stone\nin the grain")

        receipt = grind.call({}, tenant_id="acme", metadata={"traceparent": TRACE})
        run_all(app)
    said, failed = objects(lines)
    about = {"job_id": receipt.job_id, "function": "grind", "tenant_id": "acme", "trace_id": "a" * 32}
    assert about == {name: said[name] for name in about} == {name: failed[name] for name in about}
    assert ("info", "penstock.queue.job", "grinding\n\x1b[31mred") == (
        said["level"],
        said["logger"],
        said["event"],
    )
    assert ("warning", "ValueError", "ERR_UNKNOWN") == (
        failed["level"],
        failed["error"],
        failed["error_code"],
    )
    assert failed["traceback"].startswith("Traceback (most recent call last):\n")
    assert "+00:00" in failed["time"]
    assert "\x1b" not in lines.getvalue()


@pytest.mark.parametrize("outage", [StoreUnavailable, DiskFull, LeaseLost])
def test_an_outage_or_a_lost_lease_in_the_middle_of_a_job_has_no_traceback(
    lines: io.StringIO, outage: type[StoreUnavailable | DiskFull | LeaseLost]
):
    with Penstock("memory://") as app:

        @app.function(max_retries=0)
        def grind(payload: dict[str, Any]) -> None:
            raise outage("the mill's store was stopped") from OSError("connection refused")

        grind.call({})
        run_all(app)
    (failed,) = objects(lines)
    assert (outage.code, False) == (failed["error_code"], "traceback" in failed)
    assert "the mill's store was stopped" in failed["event"]


def test_other_lines_have_no_job(lines: io.StringIO):
    logging.getLogger("penstock.worker").warning("the store is %s", "unavailable")
    (found,) = objects(lines)
    assert {"time", "level", "logger", "event"} == found.keys()
    assert "the store is unavailable" == found["event"]


def test_a_name_that_is_no_text_is_escaped():
    record = logging.LogRecord("penstock.worker", logging.INFO, "", 0, "%s", ("\udcff\0",), None)
    assert "\\udcff\\x00" == json.loads(log_formatter("json").format(record))["event"]


def test_a_line_that_cannot_be_formatted_ends_nothing(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logging.getLogger("penstock.worker").warning("%d", "no number")
    logging.getLogger("penstock.worker").warning("next")
    assert ["next"] == [found["event"] for found in objects(lines)]


FORGED = "2026-11-19 12:00:00,000 INFO penstock.http: revoke key by key admin: {'key': 'ci'}"


def text_line(error: BaseException | None = None, **more: Any) -> str:
    trace = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("penstock.worker", logging.INFO, "", 0, "%s", (f"a file\n{FORGED}",), trace)
    record.__dict__.update(more)
    return log_formatter("text").format(record)


def test_no_message_traceback_or_stack_looks_like_another_line():
    inner = ValueError(f"\r\n{FORGED}\x1b[2J\u2028{FORGED}")
    inner.add_note(f"\n{FORGED}")
    group = ExceptionGroup(f"\n{FORGED}", [inner, OSError(2, f"\n{FORGED}", f"/srv/a\n{FORGED}")])
    group.__cause__ = type(f"Error\n{FORGED}", (Exception,), {})(f"\n{FORGED}")

    shown = text_line(group, stack_info=f"Stack\n{FORGED}")

    first, *rest = shown.split("\n")
    assert "a file\\n2026" in first
    assert len(rest) > 10
    assert all(line.startswith("| ") for line in rest), shown
    assert all(one.isprintable() for one in shown.replace("\n", ""))


def test_the_error_of_a_thread_is_a_line_of_the_log():
    script = (
        "import logging, threading\n"
        "from penstock.process_start import log_to_stderr\n"
        "log_to_stderr(logging.INFO, 'text')\n"
        f"def fail(): raise ValueError({FORGED!r} + chr(10) + {FORGED!r})\n"
        "thread = threading.Thread(target=fail, name='mill')\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    first, *rest = done.stderr.rstrip("\n").split("\n")
    assert first.endswith("ERROR penstock: mill ended by an error")
    assert all(line.startswith("| ") for line in rest), done.stderr
    assert 2 == done.stderr.count(FORGED)
