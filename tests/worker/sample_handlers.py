"""Sample handlers, chosen by the payload of the job."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock
from penstock.errors import PermanentFailure, ServiceUnavailable, TransientFailure
from penstock.handlers import async_run
from penstock.handlers.context import Context, Registry, Wait
from penstock.handlers.webhooks import WebhookOptions, deliver, is_webhook
from penstock.queue.job import NewJob
from penstock.worker import executor
from tests.worker.leaking_functions import (
    leak_descriptors,
    leak_many_threads,
    leak_memory,
    load_a_library,
    shout,
    shout_behind,
    state,
    tamper,
    tamper_for_good,
)
from tests.worker.misbehaving_functions import (
    block_the_sender,
    block_the_store,
    catastrophe,
    chdir,
    close_all,
    close_stdin,
    close_stdout,
    exit_hard,
    fork,
    fork_and_stay,
    freeze_in_first_run,
    garbage,
    hoard,
    hostile,
    interrupt,
    keep_the_logs_lock,
    kill_self,
    leak_a_hog,
    leak_threads,
    leave_a_timer,
    mute_stdout,
    no_text,
    print_much,
    read_stdin,
    regex,
    start_a_program,
    stop_the_clock,
    surrogates,
    sys_exit,
    too_large,
    total,
    unspeakable,
    where,
)
from tests.worker.process_names import process_name

SECRET = "a secret of this test"


def record(context: Context, what: str) -> None:
    """Append one whole line to the record, as a countable side effect."""
    path = context.payload.get("record")
    if path:
        job = f"{context.job_id} {context.claim.claim_number}"
        line = f"{what} {job} {process_name()} {time.monotonic():.6f}\n"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, line.encode())
        os.close(fd)


def noop(context: Context) -> Any:
    return {"ran": context.attempt}


def sleep(context: Context) -> None:
    time.sleep(context.payload["seconds"])


def sleep_unless_retried(context: Context) -> int:
    """Take long in the first call and be quick afterwards."""
    if context.claim.claim_number == 1:
        time.sleep(context.payload["seconds"])
    return context.claim.claim_number


def compute(context: Context) -> None:
    """Finish after so many seconds of CPU time."""
    until = time.process_time() + context.payload["seconds"]
    while time.process_time() < until:
        pass


def wait_for(context: Context) -> None:
    """Done as soon as a file is there."""
    while not Path(context.payload["there"]).exists():
        time.sleep(0.01)


def busy(context: Context) -> None:
    while True:
        pass


def digest(context: Context) -> str:
    """Make one C call of minutes, with the interpreter released."""
    huge = bytearray(1 << 20)
    return hashlib.pbkdf2_hmac("sha512", huge, b"salt", 1 << 30).hex()


def stubborn(context: Context) -> None:
    """Catch every exception: only a kill stops this handler."""
    while True:
        with suppress(BaseException):
            time.sleep(60)


def awaits(context: Context) -> None:
    """Await for ten minutes, in the loop of the process."""
    async_run.run(asyncio.sleep(600), context)


def checkpoints(context: Context) -> None:
    while True:
        context.progress(3, 4, "three of four", files=3)
        time.sleep(0.01)


def tidy(context: Context) -> None:
    """Clean up when stopped."""
    try:
        time.sleep(60)
    finally:
        record(context, "tidied")


def down(context: Context) -> None:
    raise ServiceUnavailable("qdrant")


def down_for_a_moment(context: Context) -> None:
    """Fail as if the service were down, with a breaker probing again soon."""
    executor.FIRST_PROBE_S = 0.5
    raise ServiceUnavailable("qdrant")


def up_when_there(context: Context) -> str:
    with context.service("qdrant"):
        if not Path(context.payload["there"]).exists():
            raise ServiceUnavailable("qdrant")
    return "stored"


def parent(context: Context) -> Wait:
    child = NewJob(
        queue_id=clock.new_id(),
        item_type="content",
        op="ingest",
        tenant_id="acme",
        collection="docs",
        idempotency_key="child",
        payload_json=msgspec.json.encode(context.payload["child"]).decode(),
        priority=4,
    )
    return Wait((child,))


def parent_at_second_try(context: Context) -> Wait:
    if context.attempt == 1:
        raise TransientFailure("not yet", retry_after=timedelta(seconds=0.3))
    time.sleep(1.0)
    return parent(context)


def expand(context: Context) -> Wait:
    """Add three pages of children; die after the first page of the first attempt."""
    for page in range(context.cursor or 0, 3):
        context.expand([_child(context, f"{page}-{number}") for number in range(5)], cursor=page + 1)
        context.progress(page + 1, 3)
        if context.attempt == 1:
            kill_self(context)
    return Wait()


def _child(context: Context, key: str) -> NewJob:
    return NewJob(
        queue_id=clock.new_id(),
        item_type="content",
        op="ingest",
        tenant_id="acme",
        collection="docs",
        idempotency_key=key,
        payload_json=msgspec.json.encode({"do": "noop", "record": context.payload["record"]}).decode(),
        priority=4,
    )


def taken_child(context: Context) -> Wait:
    """Add a child under the id of another job: the store refuses the whole result."""
    child = NewJob(
        queue_id=context.job_id,
        item_type="content",
        op="ingest",
        tenant_id="acme",
        collection="docs",
        idempotency_key="child",
        payload_json="{}",
    )
    return Wait((child,))


HANDLERS: dict[str, Callable[[Context], Any]] = {
    handler.__name__: handler
    for handler in (
        noop,
        sleep,
        sleep_unless_retried,
        compute,
        wait_for,
        busy,
        regex,
        total,
        block_the_sender,
        block_the_store,
        digest,
        stubborn,
        awaits,
        checkpoints,
        tidy,
        freeze_in_first_run,
        kill_self,
        exit_hard,
        sys_exit,
        catastrophe,
        interrupt,
        unspeakable,
        surrogates,
        fork,
        fork_and_stay,
        start_a_program,
        print_much,
        close_stdout,
        close_all,
        close_stdin,
        read_stdin,
        chdir,
        where,
        leak_threads,
        leave_a_timer,
        stop_the_clock,
        leak_a_hog,
        mute_stdout,
        keep_the_logs_lock,
        hoard,
        garbage,
        hostile,
        too_large,
        no_text,
        down,
        down_for_a_moment,
        up_when_there,
        parent,
        parent_at_second_try,
        expand,
        taken_child,
        state,
        tamper,
        tamper_for_good,
        leak_descriptors,
        leak_many_threads,
        leak_memory,
        load_a_library,
        shout,
        shout_behind,
    )
}


def run(context: Context) -> Any:
    record(context, "began")
    answer = HANDLERS[context.payload["do"]](context)
    record(context, "ended")
    return answer


def together(contexts: Sequence[Context]) -> Any:
    """Batch handler: return the outcome of each job, and the size of the batch."""
    for context in contexts:
        if context.payload.get("do") == "kill_self":
            kill_self(context)
        if context.payload.get("do") == "garbage":
            return "not a list of results"
        if context.payload.get("do") == "sleep_unless_retried" and not context.claim.lost_count:
            record(context, "began")
            time.sleep(context.payload["seconds"])
    return [
        PermanentFailure("asked to fail") if context.payload.get("do") == "fail" else len(contexts)
        for context in contexts
    ]


def run_function(context: Context) -> Any:
    if is_webhook(context.claim):
        return deliver(context, context.payload["payload"], WebhookOptions(secret=SECRET, private=True))
    return run(context)


def registry() -> Registry:
    handlers = Registry()
    handlers.register("content", "ingest", run)
    handlers.register("function", "run", run_function, beside=is_webhook)
    handlers.register("content", "update", together, batch=10)
    handlers.register("content", "delete", run, own=True)
    return handlers


def broken_registry() -> Registry:
    raise ImportError("no module named 'their_tasks'")
