"""Several processes at one store: the promises, checked from the recorded calls."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations, product
from pathlib import Path

import msgspec
import pytest

from penstock.queue.job import JobQuery, Status
from tests.conformance.contention_process import PROCESSES, Call, Entry, history_of
from tests.conformance.durable_engines import DURABLE, ROOT, opened, started

PATIENCE_S = 240
CHECKER = ROOT.parent / "shared" / "tools" / "history_check.py"
SAMPLE_EVERY = 3
"""The outside checker compares every claim with every job, so it gets a part of the history."""


@pytest.mark.parametrize("jobs", [1_200, pytest.param(6_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("engine", DURABLE)
def test_four_processes_drain_one_store_and_keep_every_promise(
    engine: str, jobs: int, tmp_path: Path
) -> None:
    # Open from the start: a server that only these processes used would end with them.
    queue = opened(engine, tmp_path)
    calls = _contend(engine, tmp_path, jobs)
    assert [] == list(breaches(calls))
    assert {(Status.DONE,): jobs} == queue.count(JobQuery(), by=("status",))
    queue.close()
    if CHECKER.exists():
        assert "0 breaches\n" == _checked_from_outside(calls, tmp_path / "sample.jsonl")


def _contend(engine: str, place: Path, jobs: int) -> list[Call]:
    processes = [started("contention_process", engine, place, number, jobs) for number in range(PROCESSES)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert "ready\n" == process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [("", 0)] * PROCESSES == [*zip(said, (process.returncode for process in processes), strict=True)]
    return [call for number in range(PROCESSES) for call in _recorded(history_of(place, number))]


def _recorded(file: Path) -> list[Call]:
    return [msgspec.json.decode(line, type=Call) for line in file.read_bytes().splitlines()]


class Story(msgspec.Struct):
    """History of one job: the call with the add and the position, then claims and settlements."""

    entry: Entry
    added: Call
    place: int
    claimed: list[tuple[Call, int]] = []
    settled: list[tuple[Call, Status | None]] = []


def stories_of(calls: Sequence[Call]) -> dict[str, Story]:
    stories = {
        entry.queue_id: Story(entry, call, place) for call in calls for place, entry in enumerate(call.added)
    }
    for call in calls:
        for place, (queue_id, _) in enumerate(call.claimed):
            stories[queue_id].claimed.append((call, place))
        for queue_id, _, status in call.settled:
            stories[queue_id].settled.append((call, status))
    return stories


def breaches(calls: Sequence[Call]) -> Iterator[str]:
    stories = stories_of(calls)
    yield from _not_once(stories)
    if all(len(story.claimed) == len(story.settled) == 1 for story in stories.values()):
        yield from _overlapping_locks(stories)
        yield from _out_of_order(stories)


def _not_once(stories: dict[str, Story]) -> Iterator[str]:
    for queue_id, story in stories.items():
        if len(story.claimed) != 1:
            yield f"{queue_id} was claimed {len(story.claimed)} times"
        endings = [str(status) for _, status in story.settled]
        if endings != ["done"]:
            yield f"{queue_id} was settled as {endings}"


def _overlapping_locks(stories: dict[str, Story]) -> Iterator[str]:
    """A lock is surely held from the end of the claim to the start of the settlement."""
    held: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for story in stories.values():
        if story.entry.lock_key is not None:
            (claimed, _), (settled, _) = story.claimed[0], story.settled[0]
            held[story.entry.lock_key].append((claimed.end, settled.start))
    for key, intervals in held.items():
        for (_, end), (start, _) in pairwise(sorted(intervals)):
            if start < end:
                yield f"{key} had two holders at {start}"


def _out_of_order(stories: dict[str, Story]) -> Iterator[str]:
    """Within a tenant and priority, a job surely added first is not surely claimed later.

    Surely: by an earlier place in the same call, or by a call that had ended when the other began. Rows that
    want a lock come back when it is free: they keep their order among those of the same lock.
    """
    flows: defaultdict[tuple[str, int, str | None], list[Story]] = defaultdict(list)
    for story in stories.values():
        flows[story.entry.tenant_id, story.entry.priority, story.entry.lock_key].append(story)
    for flow, members in flows.items():
        for first, second in _inversions(members):
            yield f"{flow}: {second.entry.queue_id} was claimed before {first.entry.queue_id}"


def _inversions(members: list[Story]) -> Iterator[tuple[Story, Story]]:
    batches: defaultdict[int, list[Story]] = defaultdict(list)
    for story in members:
        batches[id(story.added)].append(story)
    for batch in batches.values():
        batch.sort(key=lambda story: story.place)
        yield from (pair for pair in combinations(batch, 2) if _late(*pair))
    for before, after in permutations(batches.values(), 2):
        if before[0].added.end < after[0].added.start:
            yield from _late_batch(before, after)


def _late(first: Story, second: Story) -> bool:
    (call, place), (other, other_place) = first.claimed[0], second.claimed[0]
    return other.end < call.start or (call is other and other_place < place)


def _late_batch(before: list[Story], after: list[Story]) -> Iterator[tuple[Story, Story]]:
    """All pairs are looked at only where the member claimed last and the one claimed first may be wrong."""
    last = max(before, key=lambda story: story.claimed[0][0].start)
    first = min(after, key=lambda story: story.claimed[0][0].end)
    if first.claimed[0][0].end <= last.claimed[0][0].end:
        yield from (pair for pair in product(before, after) if _late(*pair))


def _checked_from_outside(calls: Sequence[Call], file: Path) -> str:
    events = list(_events(calls))
    file.write_bytes(b"\n".join(map(msgspec.json.encode, events)))
    command = [sys.executable, str(CHECKER), str(file), "--drained", "--max-attempts", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S).stdout


def _events(calls: Sequence[Call]) -> Iterator[dict[str, object]]:
    """Convert the history for the checker, without jobs with a lock, which may have to wait."""
    plain = [entry for call in calls for entry in call.added if entry.lock_key is None]
    sample = {entry.queue_id for entry in plain[::SAMPLE_EVERY]}
    for call in calls:
        timed: dict[str, object] = {"start": call.start, "end": call.end, "worker": call.worker}
        for entry in call.added:
            if entry.queue_id in sample:
                keys = {"key": entry.queue_id, "dedup": entry.queue_id, "job": entry.queue_id}
                yield {"op": "enqueue", **timed, **keys, "prio": entry.priority}
        for queue_id, number in call.claimed:
            if queue_id in sample:
                lease = {"token": number, "attempt": number, "lease_until": call.end + 300}
                yield {"op": "claim", **timed, "job": queue_id, **lease}
        for queue_id, number, status in call.settled:
            if queue_id in sample:
                yield {"op": "ack", **timed, "job": queue_id, "token": number, "ok": status is Status.DONE}
    yield {"op": "final", "jobs": dict.fromkeys(sample, "done")}


# The checks themselves find what they look for.

JOB, NEXT = Entry("job_1", "ann", 5, None), Entry("job_2", "ann", 5, None)
LOCKED, OTHER = Entry("job_1", "ann", 5, "disk"), Entry("job_2", "bob", 5, "disk")


def _added(start: float, *entries: Entry) -> Call:
    return Call(start, start + 1, "w", added=list(entries))


def _claimed(start: float, *ids: str) -> Call:
    return Call(start, start + 1, "w", claimed=[(queue_id, 1) for queue_id in ids])


def _done(start: float, *ids: str) -> Call:
    return Call(start, start + 1, "w", settled=[(queue_id, 1, Status.DONE) for queue_id in ids])


def test_a_history_without_fault_has_no_breach() -> None:
    history = [_added(0, JOB, NEXT), _claimed(2, "job_1", "job_2"), _done(4, "job_1", "job_2")]
    assert [] == list(breaches(history))


def test_a_lost_job_and_one_settled_twice_are_breaches() -> None:
    history = [_added(0, JOB, NEXT), _claimed(2, "job_1"), _done(4, "job_1"), _done(6, "job_1")]
    assert [
        "job_1 was settled as ['done', 'done']",
        "job_2 was claimed 0 times",
        "job_2 was settled as []",
    ] == list(breaches(history))


@pytest.mark.parametrize(
    "claims",
    [[_claimed(2, "job_2", "job_1")], [_claimed(2, "job_2"), _claimed(4, "job_1")]],
    ids=["in one call", "in two calls"],
)
@pytest.mark.parametrize(
    "adds", [[_added(0, JOB, NEXT)], [_added(-2, JOB), _added(0, NEXT)]], ids=["of one add", "of two adds"]
)
def test_a_claim_out_of_order_is_a_breach(adds: list[Call], claims: list[Call]) -> None:
    history = [*adds, *claims, _done(9, "job_1", "job_2")]
    assert ["('ann', 5, None): job_2 was claimed before job_1"] == list(breaches(history))


def test_two_holders_of_a_lock_are_a_breach() -> None:
    claims = [_claimed(2, "job_1"), _claimed(4, "job_2")]
    history = [_added(0, LOCKED, OTHER), *claims, _done(6, "job_1"), _done(8, "job_2")]
    assert ["disk had two holders at 5"] == list(breaches(history))
