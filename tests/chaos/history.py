"""A history of queue calls: every process writes down what it asks the store, and what the store answers.

Each call is two lines of one file, by one clock of the machine that never jumps: one before the call and one
after it. A call without an answer may or may not have happened: its process or the store was killed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.errors import PenstockError, StoreError
from penstock.queue.job import ClaimRequest, NewJob, Settlement

FILE = "CHAOS_HISTORY"
"""Variable with the path of the file. Without it nothing is recorded."""
ENGINE = "CHAOS_ENGINE"
RECORD = "CHAOS_RECORD"
"""Variable with the path of the record of the functions that ran."""
QUEUES = {
    "sqlite": ("penstock.queue.sqlite.queue", "SqliteQueue"),
    "jsonl": ("penstock.queue.jsonl.queue", "JsonlQueue"),
    "postgres": ("penstock.queue.postgres.queue", "PostgresQueue"),
    "redis": ("penstock.queue.redis.queue", "RedisQueue"),
}


class Added(NamedTuple):
    """A job in a request to add it."""

    job_id: str
    priority: int
    lock_key: str | None
    delay_s: float
    """Time from the request to the earliest start."""
    joinable: bool = False
    """Later requests for the same join its row, which may then start at once."""


class Settled(NamedTuple):
    """The end of a claim, as requested."""

    job_id: str
    number: int
    status: str
    what: str
    delay_s: float
    keeps: bool
    """The worker keeps the claim, and only adds children."""
    children: tuple[str, ...] = ()


class Claimed(NamedTuple):
    """A claim, as answered."""

    job_id: str
    number: int
    priority: int = 5


class Call(msgspec.Struct):
    """One call. ``end`` is None without an answer; a refused call has changed nothing."""

    op: str
    start: float
    end: float | None = None
    refused: bool = False
    added: list[Added] = []
    settled: list[Settled] = []
    oldest: bool = False
    """The claim began with the oldest jobs, whatever their priority."""
    claims: list[Claimed] = []
    statuses: list[str | None] = []
    """Answers: of the jobs that were added, or of the claims that were settled."""
    ids: list[str] = []
    """Jobs to be cancelled, or of the answer to an addition."""

    @property
    def answered(self) -> bool:
        return self.end is not None and not self.refused


class _Line(msgspec.Struct, omit_defaults=True):
    """One half of a call. ``number`` joins both."""

    number: str
    at: float
    call: Call | None = None
    answer: Call | None = None


class Writer:
    """The file of a history, appended to by whole lines."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._numbers = count()

    def begin(self, call: Call) -> str:
        number = f"{os.getpid()}.{threading.get_ident()}.{next(self._numbers)}"
        self._write(_Line(number, call.start, call=call))
        return number

    def end(self, number: str, answer: Call) -> None:
        self._write(_Line(number, time.monotonic(), answer=answer))

    def _write(self, line: _Line) -> None:
        # Opened for each line: descriptors that a function of the application finds open may be closed.
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, msgspec.json.encode(line) + b"\n")
        finally:
            os.close(fd)


def read(path: Path) -> list[Call]:
    """Read a history, in the order of the beginnings."""
    found: dict[str, Call] = {}
    lines = path.read_bytes().splitlines() if path.exists() else []
    for text in lines:
        line = msgspec.json.decode(text, type=_Line)
        if line.call is not None:
            found[line.number] = line.call
        elif line.answer is not None and line.number in found:
            call, answer = found[line.number], line.answer
            call.end, call.refused = line.at, answer.refused
            call.claims, call.statuses, call.ids = answer.claims, answer.statuses, call.ids or answer.ids
    return sorted(found.values(), key=lambda call: call.start)


# Recording.


def record_calls(environ: Mapping[str, str] = os.environ) -> None:
    """Record the calls of this process and its children, if the environment names a file."""
    if FILE not in environ:
        return
    module, name = QUEUES[environ[ENGINE]]
    record_class(getattr(import_module(module), name), environ[FILE])


def record_class(queue: type, path: str) -> None:
    """Record the calls of all queues of a class."""
    writer, inside = Writer(path), threading.local()
    for op, (given, answered) in _OPS.items():
        setattr(queue, op, _recorded(getattr(queue, op), _Recording(op, given, answered, writer, inside)))


class _Recording(NamedTuple):
    op: str
    given: Callable[..., Call]
    answered: Callable[[Any], Call]
    writer: Writer
    inside: threading.local


def _recorded(method: Callable[..., Any], recording: _Recording) -> Callable[..., Any]:
    @wraps(method)
    def call(queue: Any, *given: Any, **named: Any) -> Any:
        # A method that is made of others is one call.
        if getattr(recording.inside, "busy", False):
            return method(queue, *given, **named)
        recording.inside.busy = True
        try:
            number = recording.writer.begin(recording.given(*given))
            try:
                answer = method(queue, *given, **named)
            except StoreError:
                raise
            except PenstockError:
                recording.writer.end(number, Call("", 0, refused=True))
                raise
            recording.writer.end(number, recording.answered(answer))
            return answer
        finally:
            recording.inside.busy = False

    return call


def _add(new: Iterable[NewJob]) -> Call:
    # Of the same clock as the time of the job.
    now = time.time()
    added = [
        Added(
            each.queue_id,
            each.priority,
            each.lock_key,
            each.run_at.timestamp() - now if each.run_at else 0,
            each.dedupe,
        )
        for each in new
    ]
    return Call("add", time.monotonic(), added=added)


def _settlements(settlements: Iterable[Settlement]) -> list[Settled]:
    return [
        Settled(
            each.queue_id,
            each.claim_number,
            each.status,
            each.what,
            each.delay.total_seconds(),
            each.keep_lease,
            tuple(child.queue_id for child in each.children),
        )
        for each in settlements
    ]


def _exchange(settlements: Iterable[Settlement], request: ClaimRequest) -> Call:
    settled = _settlements(settlements)
    return Call("exchange", time.monotonic(), settled=settled, oldest=request.oldest)


def _claimed(claims: Iterable[Any]) -> list[Claimed]:
    return [Claimed(each.queue_id, each.claim_number, each.priority) for each in claims]


_OPS: dict[str, tuple[Callable[..., Call], Callable[[Any], Call]]] = {
    "add": (_add, lambda found: Call("", 0, statuses=[one.status for one in found])),
    "add_counted": (_add, lambda found: Call("", 0, statuses=[one.status for one, _ in found])),
    "claim": (
        lambda request: Call("claim", time.monotonic(), oldest=request.oldest),
        lambda claims: Call("", 0, claims=_claimed(claims)),
    ),
    # Starts a job out of turn.
    "start": (
        lambda _id, _request: Call("claim", time.monotonic(), oldest=True),
        lambda claim: Call("", 0, claims=_claimed([claim] if claim else [])),
    ),
    "settle": (
        lambda settlements: Call("settle", time.monotonic(), settled=_settlements(settlements)),
        lambda statuses: Call("", 0, statuses=list(statuses)),
    ),
    "exchange": (
        _exchange,
        lambda found: Call("", 0, statuses=list(found.settled), claims=_claimed(found.claims)),
    ),
    "cancel": (
        lambda ids: Call("cancel", time.monotonic(), ids=list(ids)),
        lambda found: Call("", 0, statuses=[one.now for one in found]),
    ),
}
