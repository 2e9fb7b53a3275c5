"""Misbehaving handlers: forks, closed descriptors, leftover threads, odd results."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, cast

from penstock.errors import PermanentFailure
from penstock.handlers.context import Context


class Catastrophe(BaseException):
    def __str__(self) -> str:
        return "not an Exception"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def regex(context: Context) -> None:
    """Block the interpreter for ever: no other thread of the process runs."""
    re.match(r"(a|a)+$", "a" * 60 + "b")


def total(context: Context) -> int:
    """Hold the interpreter for hours in a builtin that does not look at signals."""
    return sum(range(10**14))


def block_the_store(context: Context) -> str:
    """Block the interpreter for hours with the lock of the store, the first time.

    A child's sender, stopped amid a transaction, has the lock in the same way.
    """
    path = Path(context.payload["store"])
    if context.claim.claim_number > 1:
        return "done"
    if path.is_dir():
        fcntl.flock(os.open(path / "jobs" / ".queue.lock", os.O_RDWR), fcntl.LOCK_EX)
    else:
        sqlite3.connect(path, isolation_level=None).execute("BEGIN IMMEDIATE")
    sum(range(10**14))
    return "not reached"


def block_the_sender(context: Context) -> None:
    """Block the interpreter for hours while another thread is amid a settlement, the first time."""

    def settle_again_and_again() -> None:
        while True:
            context.expand([])

    if context.claim.claim_number > 1:
        return
    sender = threading.Thread(target=settle_again_and_again, daemon=True)
    sender.start()
    while True:
        frames = traceback.walk_stack(sys._current_frames().get(sender.ident or 0))
        stack = [frame.f_code for frame, _ in frames]
        if stack and "psycopg" in stack[0].co_filename and "settle_now" in [code.co_name for code in stack]:
            sum(range(10**14))
        time.sleep(0)


def freeze_in_first_run(context: Context) -> None:
    """Stop this process, and end with an error as soon as it goes on."""
    if context.claim.claim_number == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        raise PermanentFailure("frozen")


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
    """Fork; both processes return from the handler."""
    os.fork()
    return "back"


def fork_and_stay(context: Context) -> int:
    """Leave a process running for a minute."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def start_a_program(context: Context) -> None:
    """Start a process and wait without a limit."""
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
    """Close all descriptors, like a program becoming a daemon, and go on for a while."""
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
    """Replace the clock, like a test with frozen time, and leave the replacement."""
    began = time.monotonic()
    time.monotonic = lambda: began - 10_000
    time.sleep = lambda seconds: None


def leak_a_hog(context: Context) -> None:
    """Start a thread to block the interpreter for ever, a moment after the job."""

    def hog() -> None:
        time.sleep(0.3)
        regex(context)

    threading.Thread(target=hog, daemon=True).start()


class Mute:
    """A replacement of sys.stdout without flush and closed, as in some programs."""

    def write(self, text: str) -> None:
        pass


def mute_stdout(context: Context) -> None:
    sys.stdout = cast("Any", Mute())
    threading.Thread(target=time.sleep, args=(60,)).start()


def keep_the_logs_lock(context: Context) -> None:
    """Take the lock of the log in a thread, for ever."""
    kept = threading.Event()

    def keep() -> None:
        logging.getLogger().handlers[0].acquire()
        kept.set()
        threading.Event().wait()

    threading.Thread(target=keep, daemon=True).start()
    kept.wait()


_hoard: list[bytearray] = []


def hoard(context: Context) -> None:
    """Allocate memory without ever freeing any."""
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
