"""Functions of a chaos run: ``--app tests.chaos.functions:app``. Settings come from the environment.

A process that loads this module records its queue calls. Each function appends a line to the record when it
begins and when it ends: event, job, claim number, process, time, number of the request.
"""

from __future__ import annotations

import os
import time
from typing import Any

from penstock import Penstock
from penstock.handlers.context import Context
from tests.chaos.history import RECORD, record_calls
from tests.worker import misbehaving_functions, sample_handlers
from tests.worker.process_names import process_name

RETRIES = 1_000
"""More often than a function is killed."""

record_calls()
app = Penstock()


def _note(what: str, payload: dict[str, Any], context: Context) -> None:
    words = (what, context.job_id, context.claim.claim_number, process_name(), f"{time.monotonic():.6f}")
    line = " ".join(map(str, (*words, payload["number"]))) + "\n"
    fd = os.open(os.environ[RECORD], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@app.function(max_retries=RETRIES)
def sleep(payload: dict[str, Any], context: Context) -> int:
    _note("began", payload, context)
    time.sleep(payload["seconds"])
    _note("ended", payload, context)
    return int(payload["number"])


@app.function(max_retries=RETRIES)
def regex(payload: dict[str, Any], context: Context) -> None:
    """Never come back: native code that holds the interpreter lock, and looks at signals at times."""
    _note("began", payload, context)
    misbehaving_functions.regex(context)


@app.function(max_retries=RETRIES)
def total(payload: dict[str, Any], context: Context) -> None:
    """Never come back: native code that holds the interpreter lock, and looks at no signals."""
    _note("began", payload, context)
    misbehaving_functions.total(context)


@app.function(max_retries=RETRIES)
def digest(payload: dict[str, Any], context: Context) -> None:
    """Never come back: native code without the interpreter lock."""
    _note("began", payload, context)
    sample_handlers.digest(context)
