"""Rules for a history of queue calls: what a durable queue may never have answered.

A call without an answer is never blamed: it may have happened at any later time, or not at all.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.queue.job import Status
from tests.chaos.history import Added, Call, Claimed, Settled

ENDED = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})
UNANSWERED_S = 30.0
"""Time for which a claim without an answer may hide jobs from others: until its transaction is undone."""
TOLERANCE_S = 0.05
"""Times are read before the call, and stores keep milliseconds."""
RULES = (
    *("lost", "phantom", "starved", "doubled", "stale-acked", "two owners"),
    *("after the end", "claim numbers", "early", "out of order", "priority"),
)


class Violation(NamedTuple):
    rule: str
    text: str


class Taken(NamedTuple):
    """A claim and its call."""

    claim: Claimed
    call: Call

    @property
    def end(self) -> float:
        return self.call.end or 0.0


class Ending(NamedTuple):
    """A settlement with its call and answer; ``status`` is None for a lost claim or no answer."""

    settled: Settled
    call: Call
    status: str | None


class History:
    """The calls by job. ``jumps``: times in which clocks were wrong."""

    def __init__(self, calls: Sequence[Call], jumps: Sequence[tuple[float, float]] = ()) -> None:
        self.added: dict[str, tuple[Added, Call]] = {}
        self.known: set[str] = set()
        self.claims: defaultdict[str, list[Taken]] = defaultdict(list)
        self.endings: defaultdict[str, list[Ending]] = defaultdict(list)
        self.cancelled: dict[str, float] = {}
        self.unanswered_claims: list[float] = []
        self._jumps = jumps
        for call in calls:
            self._read(call)
        self.unanswered_claims.sort()
        for taken in self.claims.values():
            taken.sort(key=lambda each: each.claim.number)

    def _read(self, call: Call) -> None:
        for job in call.added:
            self.known.add(job.job_id)
            if call.answered:
                self.added.setdefault(job.job_id, (job, call))
        if call.op in ("claim", "exchange") and call.end is None:
            self.unanswered_claims.append(call.start)
        for claim in call.claims:
            self.claims[claim.job_id].append(Taken(claim, call))
        answers = call.statuses if call.answered and call.settled else [None] * len(call.settled)
        for settled, status in zip(call.settled, answers, strict=True):
            self.known.update(settled.children)
            self.endings[settled.job_id].append(Ending(settled, call, status))
        if call.op == "cancel" and not call.refused:
            for job_id in call.ids:
                self.cancelled.setdefault(job_id, call.start)

    def clocks_were_right(self, start: float, end: float) -> bool:
        return not any(since <= end and start <= until for since, until in self._jumps)


def check(
    history: History,
    acknowledged: Iterable[str],
    final: Mapping[str, str],
    ordered: Iterable[Sequence[str]] = (),
) -> list[Violation]:
    """Find everything that may not be.

    ``final``: status of each job after all work. ``ordered``: for each entity the jobs, in their order.
    """
    found = [
        *lost(history, acknowledged, final),
        *phantoms(history, final),
        *starved(final),
        *early_claims(history),
        *out_of_order(history, ordered),
        *wrong_priorities(history),
    ]
    for job_id in history.claims.keys() | history.endings.keys():
        found += _of_one_job(history, job_id)
    return found


def lost(history: History, acknowledged: Iterable[str], final: Mapping[str, str]) -> Iterator[Violation]:
    """Jobs whose addition was answered, and that are not in the store."""
    for job_id in sorted({*acknowledged, *_own_rows(history)} - final.keys()):
        yield Violation("lost", f"{job_id} was added and is not there")


def _own_rows(history: History) -> Iterator[str]:
    """Jobs that have a row of their own: they were claimed. Another request may have joined a row."""
    return (job_id for job_id in history.added if job_id in history.claims)


def phantoms(history: History, final: Mapping[str, str]) -> Iterator[Violation]:
    for job_id in sorted((history.claims.keys() | final.keys()) - history.known):
        yield Violation("phantom", f"{job_id} was never added")


def starved(final: Mapping[str, str]) -> Iterator[Violation]:
    for job_id, status in final.items():
        if status not in ENDED:
            yield Violation("starved", f"{job_id} is {status} after all work")


def _of_one_job(history: History, job_id: str) -> Iterator[Violation]:
    claims, endings = history.claims[job_id], history.endings[job_id]
    ends = [each for each in endings if each.status in ENDED]
    if len(ends) > 1:
        numbers = [each.settled.number for each in ends]
        yield Violation("doubled", f"{job_id} ended {len(ends)} times, under claims {numbers}")
    if ends:
        over = min(each.call.end or 0.0 for each in ends)
        for each in claims:
            if each.call.start > over:
                yield Violation("after the end", f"{job_id} was claimed ({each.claim.number}) after its end")
    yield from _stale(job_id, claims, endings)
    for one, following in itertools.pairwise(claims):
        yield from _followed(history, one, following)


def _stale(job_id: str, claims: Sequence[Taken], endings: Sequence[Ending]) -> Iterator[Violation]:
    """Settlements that were accepted although a later claim had been given out before."""
    for each in endings:
        newer = [one for one in claims if one.claim.number > each.settled.number]
        if each.status is not None and any(one.end < each.call.start for one in newer):
            yield Violation(
                "stale-acked",
                f"{job_id}: claim {each.settled.number} was settled after {newer[0].claim.number}",
            )


def _followed(history: History, one: Taken, following: Taken) -> Iterator[Violation]:
    """Check two claims of a job in a row: the first one must have been given up before the second."""
    job_id, before, after = one.claim.job_id, one.claim.number, following.claim.number
    if before == after:
        yield Violation("claim numbers", f"{job_id}: claim {after} was given out twice")
        return
    gap = after - before - 1
    unanswered = bisect_left(history.unanswered_claims, following.end)
    # A job that waits for its children or its document has a number more when the wait is over.
    waited = any(each.settled.what == "waits" for each in history.endings[job_id])
    if gap > unanswered and not waited:
        yield Violation("claim numbers", f"{job_id}: claim {after} came after {before}")
    if gap == 0 and not _given_up(history.endings[job_id], before, following.end):
        yield Violation("two owners", f"{job_id}: claim {after} began while claim {before} was held")


def _given_up(endings: Iterable[Ending], number: int, before: float) -> bool:
    """True if a settlement of the claim may have had its effect by then."""
    return any(
        each.settled.number == number
        and not each.settled.keeps
        and not each.call.refused
        and (each.status is not None or each.call.end is None)
        and each.call.start < before
        for each in endings
    )


def early_claims(history: History) -> Iterator[Violation]:
    """Claims before the time of the job, or before the end of a delay."""
    for job_id, (job, call) in history.added.items():
        if job.joinable:
            continue
        claims = history.claims[job_id]
        delays = [(call.start, job.delay_s, 1)]
        delays += [
            (each.call.start, each.settled.delay_s, each.settled.number + 1)
            for each in history.endings[job_id]
            if each.status == Status.PENDING and each.settled.delay_s
        ]
        for since, delay_s, number in delays:
            for each in claims:
                too_early = each.end < since + delay_s - TOLERANCE_S
                if each.claim.number == number and too_early and history.clocks_were_right(since, each.end):
                    yield Violation("early", f"{job_id}: {since + delay_s - each.end:.3f} s before its time")


def out_of_order(history: History, ordered: Iterable[Sequence[str]]) -> Iterator[Violation]:
    """Jobs of an entity that were claimed before one that had been added earlier."""
    for jobs in ordered:
        latest, last = 0.0, ""
        for job_id in jobs:
            claims = history.claims[job_id]
            if claims and claims[0].end < latest:
                yield Violation("out of order", f"{job_id} was claimed before {last}")
            # A first claim without an answer was earlier than the first one that is known.
            if claims and claims[0].claim.number == 1 and claims[0].call.start > latest:
                latest, last = claims[0].call.start, job_id


def wrong_priorities(history: History) -> Iterator[Violation]:
    """Claims of a job while another of higher priority was ready during the whole call.

    Only jobs that were never claimed before, and that wait for nothing, are ready for certain.
    """
    waiting = sorted(_ready(history), reverse=True)
    active: list[tuple[float, int, str]] = []
    calls = {id(each.call): each.call for taken in history.claims.values() for each in taken}
    for call in sorted(calls.values(), key=lambda each: each.start):
        while waiting and waiting[-1][0] < call.start:
            active.append(waiting.pop())
        active = [each for each in active if _unclaimed_until(history, each[2]) > call.start]
        if call.oldest or _hidden(history.unanswered_claims, call):
            continue
        lowest = min(claim.priority for claim in call.claims)
        for start, priority, job_id in active:
            if priority > lowest and _unclaimed_until(history, job_id) > (call.end or 0.0):
                yield Violation("priority", f"{job_id} waited since {start:.3f} and was passed over")
                break


def _ready(history: History) -> Iterator[tuple[float, int, str]]:
    for job_id, (job, call) in history.added.items():
        plain = job.lock_key is None and not job.delay_s and job_id not in history.cancelled
        if plain and job_id in history.claims and history.claims[job_id][0].claim.number == 1:
            yield call.end or 0.0, job.priority, job_id


def _unclaimed_until(history: History, job_id: str) -> float:
    return history.claims[job_id][0].call.start


def _hidden(unanswered: Sequence[float], call: Call) -> bool:
    first = bisect_left(unanswered, call.start - UNANSWERED_S)
    return first < bisect_right(unanswered, call.end or 0.0)
