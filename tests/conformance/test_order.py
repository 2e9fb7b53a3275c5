"""Order of the calls of one entity, with several processes and all possible events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom
from threading import Barrier

import msgspec
import pytest

from penstock.queue.job import JobQuery, Status
from penstock.queue.memory.queue import MemoryQueue
from tests.conformance.durable_engines import DURABLE, given_back, opened, started
from tests.conformance.entity_calls import Actor, Plan, Record

PATIENCE_S = 240
SMALL = Plan(processes=2, entities=4, calls=90, seed=0)
MEDIUM = Plan(processes=3, entities=5, calls=180, seed=0)
LARGE = Plan(processes=6, entities=20, calls=12_000, seed=0)
RETURNED = frozenset({"retry", "release", "lost"})


def seeded(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, seed=SystemRandom().getrandbits(31))


@pytest.mark.parametrize("plan", [SMALL, pytest.param(MEDIUM, marks=pytest.mark.long)], ids=["few", "some"])
@pytest.mark.parametrize("engine", DURABLE)
def test_calls_of_an_entity_start_in_order_in_several_processes(
    engine: str, plan: Plan, tmp_path: Path
) -> None:
    check(engine, tmp_path, seeded(plan))


@pytest.mark.chaos
@pytest.mark.parametrize("engine", DURABLE)
def test_very_many_calls_of_an_entity_start_in_order(engine: str, tmp_path: Path) -> None:
    check(engine, tmp_path, seeded(LARGE))


def check(engine: str, place: Path, plan: Plan) -> None:
    queue = opened(engine, place)
    run_processes(engine, place, plan)
    ends = queue.count(JobQuery(), by=("status",))
    queue.close()
    given_back(place)
    assert set(ends) <= {(Status.DONE,), (Status.FAILED,), (Status.CANCELLED,)}, f"seed {plan.seed}"
    assert [] == breaches((place / "record").read_text().splitlines()), f"seed {plan.seed}"


def run_processes(engine: str, place: Path, plan: Plan) -> None:
    given = msgspec.json.encode(plan).decode()
    processes = [started("entity_calls", engine, place, number, given) for number in range(plan.processes)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert "ready\n" == process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [
            process.communicate(timeout=PATIENCE_S * (1 + plan.calls // 1_000))[0] for process in processes
        ]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [("", 0)] * plan.processes == [*zip(said, (each.returncode for each in processes), strict=True)]


def test_calls_of_an_entity_start_in_order_in_several_threads(tmp_path: Path) -> None:
    """The memory engine, shared by threads only."""
    plan, queue, record = seeded(SMALL), MemoryQueue(), Record(tmp_path)
    start = Barrier(plan.processes)

    def act(number: int) -> None:
        actor = Actor(queue, record, number, plan)
        start.wait()
        actor.run()
        actor.finish()

    with ThreadPoolExecutor(plan.processes) as pool:
        list(pool.map(act, range(plan.processes)))
    record.close()
    assert [] == breaches(record.path.read_text().splitlines()), f"seed {plan.seed}"


# What the record has to show.


class Call(msgspec.Struct):
    """One call, as far as the record has been read. Times are line numbers."""

    queue_id: str
    priority: int
    submitted: int
    first: int
    """Start of its submission, or of the requeue that put it at the end."""
    last: int
    """End of the request that gave it its place: the submission, a raise or a requeue."""
    batch: tuple[int, int] | None
    """The submission and its place in it, until something else gives it a place."""
    waits: bool = True
    cancelled: bool = False
    loose: bool = False
    """Followed up while it ran: it runs again, at a place that is not checked."""

    @property
    def excused(self) -> bool:
        return self.cancelled or self.loose

    def surely_before(self, other: Call) -> bool:
        if self.batch and other.batch and self.batch[0] == other.batch[0]:
            return self.batch[1] < other.batch[1]
        return self.last < other.first


class Line:
    """The calls of one entity."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self._holder: Call | None = None
        self._running = False

    def begin(self, queue_id: str, asked: int, *, oldest: bool) -> Iterator[str]:
        call = self.calls[queue_id]
        if self._running and self._holder:
            yield f"{queue_id} began while {self._holder.queue_id} ran"
        elif call is not self._holder:
            if self._holder and not self._holder.excused:
                yield f"{queue_id} began while {self._holder.queue_id} was to be tried again"
            if not call.excused:
                yield from self._passed(call, asked, oldest=oldest)
        self._holder, self._running, call.waits = call, True, False

    def _passed(self, call: Call, asked: int, *, oldest: bool) -> Iterator[str]:
        for other in self.calls.values():
            if other is call or not other.waits or other.excused:
                continue
            # The oldest call of all may pass higher priorities: one claim in sixteen asks for it.
            higher = other.priority > call.priority and other.last < asked and not oldest
            if higher or (other.priority == call.priority and other.surely_before(call)):
                yield f"{call.queue_id} ({call.priority}) began before {other.queue_id} ({other.priority})"

    def by_submission(self) -> None:
        """A resume puts requeued calls back to the position of their submission."""
        for call in self.calls.values():
            if call.waits:
                call.first = call.submitted

    def forget(self, call: Call) -> None:
        """The call had ended, perhaps cancelled between two attempts, and holds no lock."""
        if self._holder is call:
            self._holder, self._running = None, False

    def end(self, way: str) -> None:
        self._running = False
        if way not in RETURNED:
            self._holder = None


def breaches(record: Sequence[str]) -> list[str]:
    """Every broken promise, in words."""
    events = [line.split() for line in record]
    placings = placings_of(events)
    lines: defaultdict[str, Line] = defaultdict(Line)
    keys: dict[str, str] = {}
    asked: dict[str, tuple[int, bool]] = {}
    pausing: set[str] = set()
    found: list[str] = []
    for at, (what, number, *rest) in enumerate(events):
        forget_requeues(lines.values(), pausing, what, number)
        if what == "places":
            for place, placing in enumerate(placings[at]):
                keys[placing.queue_id] = placing.key
                put(lines[placing.key], placing, at, place)
        elif what == "asks":
            asked[number] = (at, rest[0] == "oldest" or bool(pausing))
        elif what == "cancels":
            lines[keys[rest[0]]].calls[rest[0]].cancelled = True
        elif what == "began":
            before, oldest = asked[number]
            # Nor does a higher priority count while calls of it may be held back by a pause.
            found += lines[rest[1]].begin(rest[0], before, oldest=oldest or bool(pausing))
        elif what == "ended":
            lines[rest[1]].end(rest[2])
    return found


def forget_requeues(lines: Iterable[Line], pausing: set[str], what: str, number: str) -> None:
    """Keep up who pauses; while anybody does, calls are where their submission was."""
    if what in ("pauses", "resumed"):
        pausing ^= {number}
    if pausing or what == "resumed":
        for line in lines:
            line.by_submission()


class Placing(msgspec.Struct):
    what: str
    end: int
    queue_id: str
    key: str
    priority: int


def placings_of(events: Sequence[Sequence[str]]) -> defaultdict[int, list[Placing]]:
    """Sort by the first line: from then on the call may have the new position."""
    begun: dict[str, int] = {}
    found: defaultdict[int, list[Placing]] = defaultdict(list)
    for at, (what, number, *rest) in enumerate(events):
        if what == "places":
            begun[number] = at
        elif what in ("placed", "raised", "loose", "requeued", "suspect"):
            found[begun[number]].append(Placing(what, at, rest[0], rest[1], int(rest[2])))
    return found


def put(line: Line, placing: Placing, at: int, place: int) -> None:
    if placing.what == "placed":
        batch = (at, place)
        line.calls[placing.queue_id] = Call(placing.queue_id, placing.priority, at, at, placing.end, batch)
        return
    call = line.calls[placing.queue_id]
    call.priority, call.last, call.batch = placing.priority, placing.end, None
    call.loose = call.loose or placing.what == "loose"
    if placing.what in ("requeued", "suspect"):
        call.waits, call.cancelled = True, False
        line.forget(call)
    if placing.what == "requeued":
        # At the end of the line. One that has lost a worker before comes first, wherever that is.
        call.first = at


CLEAN = """\
places 0
placed 0 a k 5
placed 0 b k 5
asks 1 next
began 1 a k
"""


def test_a_record_in_order_has_no_breach() -> None:
    assert [] == breaches(f"{CLEAN}ended 1 a k done\nasks 1 next\nbegan 1 b k".splitlines())


@pytest.mark.parametrize(
    ("broken", "record"),
    [
        ("b (5) began before a (5)", CLEAN.replace("began 1 a", "began 1 b")),
        ("b began while a ran", f"{CLEAN}asks 2 next\nbegan 2 b k"),
        ("b began while a was to be tried again", f"{CLEAN}ended 1 a k retry\nasks 2 next\nbegan 2 b k"),
        ("a (5) began before b (7)", CLEAN.replace("placed 0 b k 5", "placed 0 b k 7")),
        (
            "a (5) began before b (9)",
            CLEAN.replace("asks", "places 0\nraised 0 b k 9\nasks"),
        ),
    ],
)
def test_each_broken_promise_is_found(broken: str, record: str) -> None:
    assert [broken] == breaches(record.splitlines())
