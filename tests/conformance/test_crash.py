"""SIGKILL at random moments: acknowledged changes are there, and nothing is half done."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random, SystemRandom
from tempfile import TemporaryDirectory

import msgspec
import pytest

from penstock.clock import new_id, now
from penstock.queue import transitions
from penstock.queue.job import CHILDREN, ENDED, ClaimRequest, Job, JobQuery, NewJob, Status
from penstock.queue.protocol import Queue
from tests.conformance.crash_process import Attempt, Line
from tests.conformance.durable_engines import DURABLE, MEMORY_DISK, opened, started
from tests.conformance.invariants import breaches

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
EVERYTHING = JobQuery(limit=1_000_000)
RUNNING = JobQuery(statuses=frozenset({Status.IN_PROGRESS}), limit=1_000_000)


ROUNDS = [8, pytest.param(40, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.chaos)]


@pytest.mark.parametrize("engine", DURABLE)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_killed_process_leaves_what_it_acknowledged_and_nothing_by_halves(
    engine: str, rounds: int, tmp_path: Path
) -> None:
    _kill_again_and_again(engine, tmp_path, rounds=rounds)


def _kill_again_and_again(engine: str, folder: Path, *, rounds: int) -> None:
    seed = SystemRandom().getrandbits(32)
    random = Random(seed)
    with (
        TemporaryDirectory(prefix="penstock-crash-", dir=MEMORY_DISK) as quick,
        _forking(engine, folder / "warm") as parent,
    ):
        # On a disk most kills meet a process that waits for a sync, in memory one that computes.
        places = [folder / "disk", Path(quick) / "memory"]
        ledgers = [Ledger([]) for _ in places]
        for number in range(rounds):
            place, ledger = places[number % 2], ledgers[number % 2]
            _kill(parent, place, seed=seed + number, random=random, ledger=ledger)
            queue = opened(engine, place)
            wrong = [*ledger.broken_by(queue.find(EVERYTHING)), *_does_not_go_on(queue)]
            ledgers[number % 2] = Ledger(queue.find(EVERYTHING))
            queue.close()
            assert not wrong, f"seed {seed}, kill {number}: {wrong}"


@contextmanager
def _forking(engine: str, warm: Path) -> Iterator[subprocess.Popen[str]]:
    parent = started("crash_process", engine, warm)
    try:
        yield parent
    finally:
        parent.kill()
        parent.communicate()


def _kill(parent: subprocess.Popen[str], place: Path, *, seed: int, random: Random, ledger: Ledger) -> None:
    assert parent.stdin is not None
    parent.stdin.write(f"{seed} {place}\n")
    parent.stdin.flush()
    pid = _said(parent).pid
    assert pid > 1, "kill would mean whole groups of processes"
    while not ledger.note(_said(parent)).did:
        pass
    time.sleep(random.uniform(0.001, 0.040))
    os.kill(pid, signal.SIGKILL)
    while not ledger.note(_said(parent)).gone:
        pass


def _said(parent: subprocess.Popen[str]) -> Line:
    assert parent.stdout is not None
    line = msgspec.json.decode(parent.stdout.readline(), type=Line)
    assert not line.error, line.error
    return line


class Ledger:
    """Expected state: the rows before, the reported calls of a killed process, and the interrupted call."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.added = {job.queue_id for job in jobs}
        self.batches: dict[str, int] = {}
        self.tried_batches: dict[str, int] = {}
        self.claimed = {job.queue_id: job.claim_number for job in jobs}
        self.progress: dict[str, int] = {}
        self.done = {job.queue_id: job.claim_number for job in jobs if job.status is Status.DONE}
        self.cut_off: Line | None = None

    def note(self, line: Line) -> Line:
        if line.tries:
            self.cut_off = line
            self._note_batches(line, self.tried_batches)
        elif line.did:
            self.cut_off = None
            self._note_batches(line, self.batches)
            self._note_answers(line)
        return line

    def _note_batches(self, line: Line, batches: dict[str, int]) -> None:
        if line.marker:
            batches[line.marker] = len(line.ids)
        batches.update({each.marker: each.children for each in line.attempts if each.children})

    def _note_answers(self, line: Line) -> None:
        if line.did == "add":
            self.added.update(line.ids)
        self.claimed.update(line.claims)
        if line.progress is not None:
            self.progress.update([line.progress])
        for attempt, answer in zip(line.attempts, line.answers, strict=True):
            if answer is None:
                raise AssertionError(f"{attempt} was taken from the only worker")
            if answer is Status.DONE:
                self.done[attempt.queue_id] = attempt.claim_number

    def broken_by(self, jobs: list[Job]) -> Iterator[str]:
        rows = {job.queue_id: job for job in jobs}
        missing = (self.added | self.claimed.keys()) - rows.keys()
        if missing:
            yield f"{sorted(missing)} are not there"
            return
        yield from self._forgotten(rows)
        yield from self._halves(rows)
        yield from breaches(jobs)

    def _forgotten(self, rows: dict[str, Job]) -> Iterator[str]:
        for queue_id, number in self.claimed.items():
            if rows[queue_id].claim_number < number:
                yield f"claim {number} of {queue_id} is forgotten"
        for queue_id, beat in self.progress.items():
            if int(rows[queue_id].progress_json or 0) < beat:
                yield f"progress {beat} of {queue_id} is forgotten"
        for queue_id, number in self.done.items():
            job = rows[queue_id]
            if (job.status, job.claim_number) != (Status.DONE, number):
                yield f"{queue_id} was done under {number}, is {job.status} under {job.claim_number}"

    def _halves(self, rows: dict[str, Job]) -> Iterator[str]:
        found = Counter(msgspec.json.decode(job.metadata).get("marker") for job in rows.values())
        for marker, size in self.tried_batches.items():
            allowed = {size} if marker in self.batches else {0, size}
            if found[marker] not in allowed:
                yield f"batch {marker} of {size} has {found[marker]} rows"
        if self.cut_off is not None and self.cut_off.attempts:
            applied = {_applied(each, rows, found) for each in self.cut_off.attempts}
            if len(applied) > 1:
                yield f"half of {self.cut_off} was applied"


def _applied(attempt: Attempt, rows: dict[str, Job], found: Counter[str]) -> bool:
    if attempt.children:
        return found[attempt.marker] > 0
    job = rows[attempt.queue_id]
    still_held = job.claim_number == attempt.claim_number and job.lease_until is not None
    return not still_held


def _does_not_go_on(queue: Queue) -> Iterator[str]:
    """Upkeep finishes interrupted work, and the store adds, claims and ends jobs as before."""
    queue.check()
    queue.reconcile()
    jobs = queue.find(EVERYTHING)
    yield from _children_not_stopped(jobs)
    yield from breaches(jobs)
    queue.settle([transitions.released(job, "killed") for job in queue.find(RUNNING) if job.lease_until])
    queue.add([_urgent()])
    claims = queue.claim(ClaimRequest("survivor", 1))
    if [Status.DONE] != queue.settle([transitions.done(claim) for claim in claims]):
        yield f"{claims} could not be done"
    queue.prune(dict.fromkeys(ENDED, now() - timedelta(milliseconds=20)))


def _children_not_stopped(jobs: list[Job]) -> Iterator[str]:
    stopping = {
        job.queue_id: job.run
        for job in jobs
        if job.waiting and job.waiting_for == CHILDREN and job.cancel_requested
    }
    for job in jobs:
        current = job.parent_id in stopping and stopping[job.parent_id] == job.parent_run
        if current and not job.ended and not job.cancel_requested:
            yield f"{job.queue_id} goes on though its parent was cancelled"


def _urgent() -> NewJob:
    return NewJob(
        queue_id=new_id(),
        item_type="file",
        op="ingest",
        tenant_id="cyd",
        collection="docs",
        idempotency_key=new_id(),
        payload_json="{}",
        priority=10,
    )


# The ledger itself finds what it looks for.

TRIED = Line(
    tries="settle", attempts=[Attempt("job_1", 1, "done", "m", 0), Attempt("job_2", 1, "done", "n", 0)]
)


def _row(queue_id: str, status: Status, number: int = 1, marker: str = "first") -> Job:
    new = msgspec.structs.replace(_urgent(), queue_id=queue_id, idempotency_key=queue_id)
    leased = status is Status.IN_PROGRESS
    return msgspec.structs.replace(
        transitions.added(new, NOON, 0),
        status=status,
        claim_number=number,
        metadata=f'{{"marker":"{marker}"}}',
        lease_until=NOON if leased else None,
        finished_at=NOON if status is Status.DONE else None,
    )


def _ledger(*lines: Line) -> Ledger:
    ledger = Ledger([])
    for line in lines:
        ledger.note(line)
    return ledger


def test_what_is_there_as_acknowledged_is_no_breach() -> None:
    added = Line(did="add", marker="first", ids=["job_1", "job_2"])
    settled = Line(did="settle", attempts=TRIED.attempts, answers=[Status.DONE, Status.DONE])
    rows = [_row("job_1", Status.DONE), _row("job_2", Status.DONE)]
    assert [] == list(_ledger(added, TRIED, settled).broken_by(rows))


def test_an_acknowledged_row_that_is_not_there_is_a_breach() -> None:
    ledger = _ledger(
        Line(tries="add", marker="first", ids=["job_1"]), Line(did="add", marker="first", ids=["job_1"])
    )
    assert ["['job_1'] are not there"] == list(ledger.broken_by([]))


def test_an_acknowledged_end_that_does_not_hold_is_a_breach() -> None:
    ledger = _ledger(Line(did="settle", attempts=TRIED.attempts[:1], answers=[Status.DONE]))
    found = list(ledger.broken_by([_row("job_1", Status.IN_PROGRESS)]))
    assert ["job_1 was done under 1, is in_progress under 1"] == found


def test_half_a_batch_is_a_breach() -> None:
    ledger = _ledger(Line(tries="add", marker="first", ids=["job_1", "job_2"]))
    found = list(ledger.broken_by([_row("job_1", Status.PENDING, 0)]))
    assert ["batch first of 2 has 1 rows"] == found


def test_half_a_settle_is_a_breach() -> None:
    rows = [_row("job_1", Status.DONE), _row("job_2", Status.IN_PROGRESS)]
    (found,) = _ledger(TRIED).broken_by(rows)
    assert found.startswith("half of ")
