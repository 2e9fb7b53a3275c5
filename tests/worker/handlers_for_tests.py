"""Handlers that do what handlers in the field do to their workers, chosen by the job's payload."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock import clock
from penstock.errors import PermanentFailure, ServiceUnavailable
from penstock.handlers.context import Context
from penstock.handlers.registry import Registry, Wait
from penstock.job import NewJob
from penstock.worker import breaker


class Catastrophe(BaseException):
    def __str__(self) -> str:
        return "not an Exception"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def record(context: Context, what: str) -> None:
    """A side effect anybody can count: one line a call, whole whatever happens."""
    path = context.payload.get("record")
    if path:
        line = f"{what} {context.job_id} {context.claim.claim_number} {os.getpid()} {time.monotonic():.6f}\n"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, line.encode())
        os.close(fd)


def noop(context: Context) -> Any:
    return {"ran": context.attempt}


def sleep(context: Context) -> None:
    time.sleep(context.payload["seconds"])


def sleep_unless_retried(context: Context) -> int:
    """Long the first time, quick ever after."""
    if context.claim.claim_number == 1:
        time.sleep(context.payload["seconds"])
    return context.claim.claim_number


def compute(context: Context) -> None:
    """Done after so many seconds on a core, however long that takes."""
    until = time.process_time() + context.payload["seconds"]
    while time.process_time() < until:
        pass


def busy(context: Context) -> None:
    while True:
        pass


def regex(context: Context) -> None:
    """Keeps the interpreter for ever: no other thread of the process runs."""
    re.match(r"(a|a)+$", "a" * 60 + "b")


def digest(context: Context) -> str:
    """One C call of minutes that gives the interpreter away."""
    huge = bytearray(1 << 20)
    return hashlib.pbkdf2_hmac("sha512", huge, b"salt", 1 << 30).hex()


def stubborn(context: Context) -> None:
    """Swallows whatever is raised to stop it."""
    while True:
        with suppress(BaseException):
            time.sleep(60)


def checkpoints(context: Context) -> None:
    while True:
        context.progress(3, 4, "three of four", files=3)
        time.sleep(0.01)


def tidy(context: Context) -> None:
    """Cleans up behind itself when it is stopped."""
    try:
        time.sleep(60)
    finally:
        record(context, "tidied")


def kill_self(context: Context) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_hard(context: Context) -> None:
    os._exit(3)


def sys_exit(context: Context) -> None:
    sys.exit("enough")


def catastrophe(context: Context) -> None:
    raise Catastrophe


def interrupt(context: Context) -> None:
    raise KeyboardInterrupt


def unspeakable(context: Context) -> None:
    raise Unspeakable


def surrogates(context: Context) -> None:
    raise PermanentFailure("bad \ud800 text \0 here")


def fork(context: Context) -> str:
    """Both come back from the handler."""
    os.fork()
    return "back"


def fork_and_stay(context: Context) -> int:
    """Leaves a process behind that would live on for a minute."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def start_a_program(context: Context) -> None:
    """And wait for it, for as long as it likes."""
    with subprocess.Popen(["sleep", "600"]) as program:
        Path(context.payload["pid"]).write_text(str(program.pid))


def print_much(context: Context) -> None:
    print("x" * 100_000)  # more than a buffer holds
    sys.stdout.flush()
    sys.stderr.write("")


def close_stdout(context: Context) -> None:
    sys.stdout.close()
    sys.stderr = cast("Any", None)
    os.close(1)


def close_all(context: Context) -> str:
    """As programs do that turn themselves into daemons; it takes a while to notice."""
    os.closerange(3, 4096)
    time.sleep(context.payload.get("seconds", 0))
    return "closed"


def close_stdin(context: Context) -> None:
    sys.stdin.close()
    os.close(0)


def read_stdin(context: Context) -> str:
    return sys.stdin.read()


def chdir(context: Context) -> None:
    os.chdir("/")


def where(context: Context) -> str:
    return str(Path.cwd())


def leak_threads(context: Context) -> None:
    for _ in range(5):
        threading.Thread(target=time.sleep, args=(60,)).start()


def leave_a_timer(context: Context) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.4)
    signal.setitimer(signal.ITIMER_PROF, 0.4)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def stop_the_clock(context: Context) -> None:
    """As tests do that freeze the time; it was not put back."""
    began = time.monotonic()
    time.monotonic = lambda: began - 10_000
    time.sleep = lambda seconds: None


def leak_a_hog(context: Context) -> None:
    """A thread that keeps the interpreter for ever, from a moment after its job on."""

    def hog() -> None:
        time.sleep(0.3)
        regex(context)

    threading.Thread(target=hog, daemon=True).start()


class Mute:
    """As some programs replace sys.stdout: no flush, no closed."""

    def write(self, text: str) -> None:
        pass


def mute_stdout(context: Context) -> None:
    sys.stdout = cast("Any", Mute())
    threading.Thread(target=time.sleep, args=(60,)).start()


def keep_the_logs_lock(context: Context) -> None:
    """In a thread that never gives it back."""
    kept = threading.Event()

    def keep() -> None:
        logging.getLogger().handlers[0].acquire()
        kept.set()
        threading.Event().wait()

    threading.Thread(target=keep, daemon=True).start()
    kept.wait()


_hoard: list[bytearray] = []


def hoard(context: Context) -> None:
    """Memory that is never given back."""
    _hoard.append(bytearray(b"x") * (30 << 20))


def garbage(context: Context) -> object:
    return object()


def hostile(context: Context) -> object:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


def too_large(context: Context) -> str:
    return "x" * 2_000_000


def no_text(context: Context) -> str:
    return "\ud800"


def down(context: Context) -> None:
    raise ServiceUnavailable("qdrant")


def down_for_a_moment(context: Context) -> None:
    """The same, in a process that asks again soon."""
    breaker.FIRST_PROBE_S = 0.5
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


def expand(context: Context) -> Wait:
    """Three pages of children, dying after the first page of the first attempt."""
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
    """A child under an id that another job has: the store refuses the whole answer."""
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
        busy,
        regex,
        digest,
        stubborn,
        checkpoints,
        tidy,
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
        expand,
        taken_child,
    )
}


def run(context: Context) -> Any:
    record(context, "began")
    answer = HANDLERS[context.payload["do"]](context)
    record(context, "ended")
    return answer


def together(contexts: Sequence[Context]) -> Any:
    """A batch handler: each job's own outcome, and how many came with it."""
    for context in contexts:
        if context.payload.get("do") == "kill_self":
            kill_self(context)
        if context.payload.get("do") == "garbage":
            return "not a list of results"
    return [
        PermanentFailure("asked to fail") if context.payload.get("do") == "fail" else len(contexts)
        for context in contexts
    ]


def registry() -> Registry:
    handlers = Registry()
    handlers.register("content", "ingest", run)
    handlers.register("content", "update", together, batch=10)
    return handlers


def broken_registry() -> Registry:
    raise ImportError("no module named 'their_tasks'")
