"""The account of a kill run: what was killed, what became of every job, and every promise that was broken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from penstock.queue.job import Job, Status
from penstock.queue.transitions import TIMED_OUT
from tests.worker.kill_load import Stuck

ENDS = {"timeout": (Status.FAILED, TIMED_OUT), "cancel": (Status.CANCELLED, "ERR_CANCELLED")}
KILLS = ("child", "supervisor", "tree", "server")
FAULTS = ("freeze", "full disk", "slow disk", "clock jump", "read-only disk")
STATES = ("read-only server", "ended sessions", "restart", "lost pooler", "no replicas", "lost login")
"""States of a server that pass, of which none may end a worker."""


class Begun(NamedTuple):
    """One line of the record: a call that began or ended."""

    what: str
    job_id: str
    claim_number: int
    process: str
    """Process id and start; see ``process_name``."""
    at: float

    @classmethod
    def read(cls, line: Sequence[str]) -> Begun:
        return cls(line[0], line[1], int(line[2]), line[3], float(line[4]))


class Story(msgspec.Struct):
    """Everything a kill run left behind, as the checks need it."""

    engine: str
    struck: Counter[str]
    acknowledged: list[str]
    keys: dict[str, str]
    """Lock keys by job, in the order of the requests."""
    stuck: dict[str, Stuck]
    cancelled_at: dict[str, float]
    jobs: list[Job]
    record: list[Begun]
    endings: int
    """Changes to ``done``, counted by the store."""
    endings_may_be_missed: bool = False
    alive: frozenset[str] = frozenset()
    """Processes of workers that run at the end."""
    ended_alone: tuple[str, ...] = ()
    """Ends of running workers that nobody had asked for, with the last line of the log."""


class Account(msgspec.Struct):
    """The figures of one engine, and the broken promises in words."""

    engine: str
    struck: Counter[str]
    counts: dict[str, int]
    ended: dict[tuple[str, str], tuple[int, int, float, float]]
    """By native function and way: ended so, asked for, and median and longest delay in seconds."""
    breaches: list[str]

    @property
    def kills(self) -> int:
        return sum(self.struck[what] for what in KILLS)

    def text(self) -> str:
        struck = ", ".join(
            f"{self.struck[what]} {what}"
            for what in (*KILLS, "polite stop", *FAULTS, *STATES)
            if self.struck[what]
        )
        counts = ", ".join(f"{number:,} {name}" for name, number in self.counts.items())
        lines = [f"{self.engine}: {self.kills} kills ({struck})", f"  jobs: {counts}"]
        for (do, way), (right, asked, middle, longest) in sorted(self.ended.items()):
            lines.append(
                f"  stuck in {do}, {way}: {right} of {asked} ended so,"
                f" {middle:.1f} s after (median), {longest:.1f} s (longest)"
            )
        lines += [f"  BROKEN: {breach}" for breach in self.breaches] or ["  no promise was broken"]
        return "\n".join(lines)


def account(story: Story, wall_minus_monotonic: float) -> Account:
    rows = {job.queue_id: job for job in story.jobs}
    done = [job for job in story.jobs if job.status is Status.DONE]
    inverted, overlapped = [*inversions(story)], [*overlaps(story)]
    began = sum(line.what == "began" for line in story.record)
    counts = {
        "acknowledged": len(story.acknowledged),
        "of entities": len(story.keys),
        "lost": len(set(story.acknowledged) - rows.keys()),
        "done": len(done),
        "done twice": max(0, story.endings - len(done)),
        "left unfinished": sum(not job.ended for job in story.jobs),
        "attempts lost": sum(job.lost_count for job in story.jobs),
        "calls more than jobs": began - len(story.jobs),
        "order inversions": len(inverted),
        "overlaps": len(overlapped),
    }
    found = [*breaches(story, rows), *inverted, *overlapped]
    ended = {
        (do, way): _figures(story, rows, Stuck(do, way), wall_minus_monotonic)
        for do, way in set(story.stuck.values())
    }
    return Account(story.engine, story.struck, counts, ended, found)


def breaches(story: Story, rows: Mapping[str, Job]) -> Iterator[str]:
    for job_id in sorted(set(story.acknowledged) - rows.keys()):
        yield f"{job_id} was acknowledged and is not there"
    returned = {(line.job_id, line.claim_number) for line in story.record if line.what == "ended"}
    for job in story.jobs:
        call = story.stuck.get(job.queue_id)
        right = ENDS[call.way] if call else (Status.DONE, None)
        if (job.status, job.error_code) != right:
            yield f"{job.queue_id} ({call}) is {job.status} with {job.error_code}"
        elif call is None and (job.queue_id, job.claim_number) not in returned:
            yield f"{job.queue_id} is done under claim {job.claim_number}, which never came to its end"
    done = sum(job.status is Status.DONE for job in story.jobs)
    if story.endings > done or (story.endings < done and not story.endings_may_be_missed):
        yield f"{done} jobs are done, the store saw {story.endings} endings"
    yield from (f"a worker ended by itself: {end}" for end in story.ended_alone)
    yield from _repeated_claims(story.record)
    yield from _survivors(story)


def _repeated_claims(record: Sequence[Begun]) -> Iterator[str]:
    for what in ("began", "ended"):
        found = Counter((line.job_id, line.claim_number) for line in record if line.what == what)
        for (job_id, number), times in found.items():
            if times > 1:
                yield f"claim {number} of {job_id} {what} {times} times"


def _survivors(story: Story) -> Iterator[str]:
    """A process that is stuck in native code can only be killed: it never does anything again."""
    stuck_in: dict[str, str] = {}
    for line in story.record:
        if line.process in stuck_in:
            yield f"process {line.process} went on with {line.job_id} after {stuck_in.pop(line.process)}"
        if line.job_id in story.stuck:
            stuck_in[line.process] = line.job_id
    for process in stuck_in.keys() & story.alive:
        yield f"process {process} still runs, stuck in {stuck_in[process]}"


# The order of entities.


def _by_entity(story: Story) -> dict[str, list[Begun]]:
    found: defaultdict[str, list[Begun]] = defaultdict(list)
    for line in story.record:
        if line.job_id in story.keys:
            found[story.keys[line.job_id]].append(line)
    return found


def inversions(story: Story) -> Iterator[str]:
    """Calls that began, for the first time or again, after a later call of their entity had begun."""
    place = {job_id: number for number, job_id in enumerate(story.keys)}
    for entity, lines in _by_entity(story).items():
        last: Begun | None = None
        for line in lines:
            if line.what != "began":
                continue
            if last is not None and place[line.job_id] < place[last.job_id]:
                yield f"{entity}: {line.job_id} began after {last.job_id}"
            else:
                last = line


def overlaps(story: Story) -> Iterator[str]:
    """Calls that came to their end after another call of their entity, or the same one again, had begun."""
    for entity, lines in _by_entity(story).items():
        running: Begun | None = None
        for line in lines:
            if line.what == "began":
                running = line
            elif running is None or running[1:3] != line[1:3]:
                yield f"{entity}: {line.job_id} ended while {running and running.job_id} ran"


def _figures(
    story: Story, rows: Mapping[str, Job], call: Stuck, wall_minus_monotonic: float
) -> tuple[int, int, float, float]:
    ids = [job_id for job_id, each in story.stuck.items() if each == call]
    last = {line.job_id: line.at + wall_minus_monotonic for line in story.record if line.what == "began"}
    right, delays = 0, []
    for job_id in ids:
        job = rows.get(job_id)
        if job is None or (job.status, job.error_code) != ENDS[call.way] or job.finished_at is None:
            continue
        right += 1
        since = story.cancelled_at.get(job_id) if call.way == "cancel" else last.get(job_id)
        # The clock of the worker may have jumped meanwhile.
        delays.append(max(0.0, job.finished_at.timestamp() - (since or 0.0)))
    return right, len(ids), median(delays or [0.0]), max(delays, default=0.0)
