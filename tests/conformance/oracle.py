"""Drives an engine and the reference with the same calls and compares everything they hold."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.queue import transitions
from penstock.queue.job import (
    Beat,
    Claim,
    ClaimRequest,
    Held,
    Job,
    JobQuery,
    NewJob,
    QueueLimits,
    RowCounts,
    Scope,
    Settlement,
    Status,
    WorkerReport,
)
from penstock.queue.limits import Limit
from penstock.queue.memory.queue import MemoryQueue
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.protocol import Queue
from penstock.queue.rules import rows
from tests.conformance.durable_engines import MEMORY_DISK
from tests.conformance.invariants import Refusal, breaches, differences, outcome
from tests.conformance.random_values import (
    AGES,
    ENDINGS,
    KEY_LIMITS,
    LIMITS,
    PICKS,
    QUERIES,
    REQUESTS,
    SCOPES,
    SPECS,
    WAYS,
    Ending,
    Spec,
)
from tests.conformance.replay import Call, ConcurrentReference, exchanged_ahead
from tests.servers.stores import given_back

Opener: TypeAlias = Callable[[Path], Queue]
Ended: TypeAlias = Mapping[Status, timedelta]

START = datetime(2030, 1, 1, tzinfo=UTC)
TICK = timedelta(milliseconds=1)
EVERYTHING = JobQuery(limit=10_000)


class Difference(AssertionError):
    """The engine and the reference disagree, or the reference broke a promise."""


class Oracle(RuleBasedStateMachine):
    """Two handles of one store stand for two processes; ``self.engine`` is the one in use."""

    open_engine: ClassVar[Opener]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-oracle-", dir=MEMORY_DISK)
        self.engine, self.other = self.opened(), self.opened()
        on_postgres = isinstance(self.engine, PostgresQueue)
        self.reference = ConcurrentReference() if on_postgres else MemoryQueue()
        self.calls: list[Call] = []
        self.now = START
        self.ids: list[str] = []
        self.claims: list[Claim] = []
        self.numbers: dict[str, int] = {}
        self.cut_trees: frozenset[str] = frozenset()
        self.locks_are_shared = True

    @initialize(shared=st.booleans())
    def choose_locks(self, shared: bool) -> None:
        """Let jobs wait for locks or not: an engine ends jobs by its fast path only while none waits."""
        self.locks_are_shared = shared

    def opened(self) -> Queue:
        queue = type(self).open_engine(Path(self.folder.name))
        queue.migrate()
        return queue

    def teardown(self) -> None:
        self.engine.close()
        self.other.close()
        given_back(Path(self.folder.name))
        self.folder.cleanup()

    # The same call on both sides.

    def both(self, method: str, *args: Any, timed: bool = True, **kwargs: Any) -> Any:
        if timed:
            self.now += TICK
            kwargs["now"] = self.now
        expected = outcome(self.reference, method, args, kwargs)
        found = outcome(self.engine, method, args, kwargs)
        if found != expected and method == "exchange" and isinstance(self.engine, PostgresQueue):
            self.reference, expected = exchanged_ahead(self.calls, *args, **kwargs)
        self.calls.append((method, args, kwargs))
        if found != expected:
            raise Difference(f"{method} answered {found!r}, the reference {expected!r}")
        if method in ("claim", "exchange") and not isinstance(expected, Refusal):
            self.claims += expected.claims if method == "exchange" else expected
        return expected

    def new(self, spec: Spec) -> NewJob:
        queue_id = f"job_{len(self.ids):04}"
        self.ids.append(queue_id)
        return NewJob(
            queue_id=queue_id,
            item_type=spec.item_type,
            op=spec.op,
            tenant_id=spec.tenant_id,
            collection=spec.collection,
            idempotency_key=f"key-{spec.key}",
            payload_json=msgspec.json.encode({"id": queue_id, "text": spec.text}).decode(),
            priority=spec.priority,
            branch=spec.branch,
            metadata=msgspec.json.encode({"from": queue_id}).decode(),
            dedupe=spec.dedupe,
            run_at=None if spec.delay is None else self.now + timedelta(seconds=spec.delay),
            lock_key=spec.lock if self.locks_are_shared else spec.lock and f"{spec.lock}:{queue_id}",
            limit_key=spec.limit,
            max_retries=spec.max_retries,
            timeout_s=60 + spec.key,
            submitted_by=f"door-{spec.key}",
            backlog_key=spec.backlog if spec.item_type == "function" else None,
            result_ttl_s=spec.ttl,
        )

    def picked(self, picks: Sequence[int]) -> list[str]:
        """Return an existing id, newest first; beyond them an unknown id."""
        known = ["job_none", *self.ids]
        return [known[-1 - pick % len(known)] for pick in picks]

    def in_progress(self) -> list[Job]:
        return self.reference.find(JobQuery(statuses=frozenset({Status.IN_PROGRESS}), limit=10_000))

    def holder(self, pick: int, stale: bool) -> Claim | Job | None:
        holders: Sequence[Claim | Job] = self.claims[::-1] if stale else self.in_progress()
        return holders[pick % len(holders)] if holders else None

    def settlements(self, endings: Sequence[Ending]) -> list[Settlement]:
        made = []
        for ending in endings:
            holder = self.holder(ending.pick, ending.stale)
            if holder is not None:
                children = tuple(self.new(spec) for spec in ending.children)
                made.append(WAYS[ending.way](holder, children))
        return made

    # Adding.

    @rule(spec=SPECS)
    def add(self, spec: Spec) -> None:
        self.both("add", [self.new(spec)])

    @rule(specs=st.lists(SPECS, min_size=2, max_size=6))
    def add_many(self, specs: list[Spec]) -> None:
        self.both("add", [self.new(spec) for spec in specs])

    @rule(specs=st.lists(SPECS, max_size=4), limits=LIMITS)
    def add_while_there_is_room(self, specs: list[Spec], limits: QueueLimits) -> None:
        self.both("add", [self.new(spec) for spec in specs], limits=limits)

    @rule(specs=st.lists(SPECS, min_size=1, max_size=3), pick=st.integers(0, 9))
    def add_with_a_known_id(self, specs: list[Spec], pick: int) -> None:
        known = self.picked([pick])[0]
        new = [self.new(spec) for spec in specs]
        self.both("add", [*new[:-1], msgspec.structs.replace(new[-1], queue_id=known)])

    @rule(specs=st.lists(SPECS, min_size=1, max_size=3), picks=PICKS, own=st.booleans(), fails=st.booleans())
    def add_after_others(self, specs: list[Spec], picks: list[int], own: bool, fails: bool) -> None:
        """Jobs that wait for existing ones, and perhaps for the first job of the same call."""
        after = tuple(dict.fromkeys(self.picked(picks)))
        first, *rest = [self.new(spec) for spec in specs]
        waiting = {"after": (*after, first.queue_id) if own else after, "run_after_failure": fails}
        first = first if own else msgspec.structs.replace(first, **waiting)
        self.both("add", [first, *(msgspec.structs.replace(each, **waiting) for each in rest)])

    # Claiming and settling.

    @rule(request=REQUESTS)
    def claim(self, request: ClaimRequest) -> None:
        self.both("claim", request)

    @rule(specs=st.lists(SPECS, min_size=1, max_size=5), request=REQUESTS, again=st.none() | REQUESTS)
    def run_new_jobs(self, specs: list[Spec], request: ClaimRequest, again: ClaimRequest | None) -> None:
        """Add, claim and end jobs in one step: calls that are drawn one by one seldom get so far."""
        self.add_many(specs)
        self.claim(request)
        self.finish(len(specs), again)

    @rule(endings=st.lists(ENDINGS, min_size=1, max_size=4))
    def settle(self, endings: list[Ending]) -> None:
        self.both("settle", self.settlements(endings))

    @rule(ending=ENDINGS)
    def settle_one(self, ending: Ending) -> None:
        self.both("settle", self.settlements([ending]))

    @rule(first=ENDINGS, second=ENDINGS)
    def settle_one_claim_twice(self, first: Ending, second: Ending) -> None:
        same = second._replace(pick=first.pick, stale=first.stale)
        self.both("settle", self.settlements([first, same]))

    @rule(specs=st.lists(SPECS, min_size=1, max_size=3), pick=st.integers(0, 7))
    def settle_with_a_taken_id(self, specs: list[Spec], pick: int) -> None:
        """Settle with a taken child id: refused as a whole. Not on the reference, which cannot undo."""
        holder = self.holder(pick, stale=False)
        if holder is not None:
            children = [self.new(spec) for spec in specs]
            wrong = {"queue_id": holder.queue_id, "idempotency_key": "taken"}
            children[-1] = msgspec.structs.replace(children[-1], **wrong)
            settlements = [transitions.waits(holder, children=tuple(children))]
            found = outcome(self.engine, "settle", [settlements], {"now": self.now})
            if not isinstance(found, Refusal) or found.error != "DuplicateId":
                raise Difference(f"settle answered {found!r}, though an id of a child was taken")

    @rule(endings=st.lists(ENDINGS, max_size=3), request=REQUESTS)
    def exchange(self, endings: list[Ending], request: ClaimRequest) -> None:
        self.both("exchange", self.settlements(endings), request)

    @rule(pick=st.integers(0, 7), request=REQUESTS)
    def hand_over(self, pick: int, request: ClaimRequest) -> None:
        """Release and claim again: the same worker may hold a job twice, and only the second claim counts."""
        holder = self.holder(pick, stale=False)
        given_back = [transitions.released(holder, "shutting down")] if holder else []
        self.both("exchange", given_back, request)

    @rule(pick=st.integers(0, 7), way=st.just("done") | st.sampled_from(sorted(WAYS)))
    def old_holder_returns(self, pick: int, way: str) -> None:
        running = {job.queue_id: job.claim_number for job in self.in_progress()}
        old = [claim for claim in self.claims if running.get(claim.queue_id, 0) > claim.claim_number]
        if old:
            claim = old[-1 - pick % len(old)]
            self.both("renew", [Beat(claim.queue_id, claim.claim_number, timedelta(hours=1), "{}")])
            self.both("settle", [WAYS[way](claim, ())])

    @rule(count=st.integers(1, 5), again=st.none() | REQUESTS)
    def finish(self, count: int, again: ClaimRequest | None) -> None:
        """End jobs by the plain path, some in a second attempt, so trees end and locks change hands."""
        if again is not None:
            self.both("settle", [WAYS["transient"](job, ()) for job in self.in_progress()[:count]])
            self.clock_forward(400)
            self.both("claim", again)
        leased = [job for job in self.in_progress() if job.lease_until is not None]
        self.both("settle", [transitions.done(job) for job in leased[:count]])

    @rule(
        pick=st.integers(0, 7),
        stale=st.sampled_from([False, False, True]),
        lease=st.sampled_from([None, timedelta(seconds=100)]),
        progress=st.sampled_from([None, '{"percent":50}']),
    )
    def renew(self, pick: int, stale: bool, lease: timedelta | None, progress: str | None) -> None:
        holders = [self.holder(pick, stale), self.holder(pick + 1, not stale)]
        beats = [
            Beat(holder.queue_id, holder.claim_number, lease, progress)
            for holder in holders
            if holder is not None
        ]
        self.both("renew", beats)

    @rule(limit=st.sampled_from([100, 2]))
    def reap(self, limit: int) -> None:
        late = self.both("expired", limit=limit)
        self.both("settle", [transitions.lease_lost(job) for job in late])

    # A person's calls.

    @rule(picks=PICKS)
    def cancel(self, picks: list[int]) -> None:
        self.both("cancel", self.picked(picks))

    @rule(picks=PICKS)
    def requeue(self, picks: list[int]) -> None:
        self.both("requeue", self.picked(picks))

    @rule(pick=st.integers(0, 9))
    def requeue_one_that_ended_badly(self, pick: int) -> None:
        bad = frozenset({Status.FAILED, Status.CANCELLED})
        ended = self.reference.find(JobQuery(statuses=bad, limit=10_000))
        self.both("requeue", [ended[pick % len(ended)].queue_id] if ended else [])

    @rule(scope=SCOPES)
    def pause(self, scope: Scope) -> None:
        self.both("pause", scope)

    @rule(scope=SCOPES, pick=st.integers(0, 3))
    def resume(self, scope: Scope, pick: int) -> None:
        paused = [*sorted(self.reference.paused()), scope]
        self.both("resume", paused[pick % len(paused)])

    @rule(limit=KEY_LIMITS, kept=st.sampled_from([True, True, False]))
    def change_limit(self, limit: Limit, kept: bool) -> None:
        self.both("put_limit" if kept else "drop_limit", limit if kept else limit.key)

    # Time, upkeep and processes.

    @rule(seconds=st.sampled_from([1, 6, 35, 100, 400]))
    def clock_forward(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.both("admit")
        for queue in (self.engine, self.reference):
            queue.expire_results(now=self.now)
        self.calls.append(("expire_results", (), {"now": self.now}))

    @rule(
        ages=st.dictionaries(st.sampled_from([Status.DONE, Status.FAILED, Status.CANCELLED]), AGES),
        limit=st.sampled_from([1_000, 1, 3]),
    )
    def prune(self, ages: Ended, limit: int) -> None:
        before = {status: self.now - age for status, age in ages.items()}
        trees = {job.root_id for job in self.reference.find(EVERYTHING) if job.parent_id is not None}
        if self.both("prune", before, limit=limit, timed=False) >= limit:
            self.cut_trees |= frozenset(filter(None, trees))

    @rule(reopens=st.booleans(), reconciles=st.booleans())
    def go_on_in_another_process(self, reopens: bool, reconciles: bool) -> None:
        if reopens:
            self.engine.close()
            self.engine = self.opened()
        else:
            self.engine, self.other = self.other, self.engine
        if reconciles:
            self.both("reconcile")

    # Reading.

    @rule(
        query=QUERIES,
        by=st.sampled_from([(), ("status",), ("tenant_id", "held"), ("priority",)]),
        pick=st.integers(0, 9),
    )
    def read(self, query: JobQuery, by: tuple[str, ...], pick: int) -> None:
        self.both("find", query, timed=False)
        self.both("count", query, by=by, timed=False)
        self.both("count", JobQuery(statuses=query.statuses), by=("held", "item_type"), timed=False)
        self.both("backlog", functions=query.newest_first, cap=query.limit, timed=False)
        self.both("busy", documents=query.newest_first)
        queue_id = self.picked([pick])[0]
        self.both("get", queue_id, timed=False)
        self.both("position", queue_id, timed=False)
        self.both("report", WorkerReport(worker_id=f"w{pick}", host="here", pid=7, started_at=START))
        self.both("forget_workers", self.reference.workers()[: pick // 3], timed=False)
        self.both("workers", timed=False)

    # After every call.

    @invariant()
    def same_state(self) -> None:
        expected, found = self.reference.find(EVERYTHING), self.engine.find(EVERYTHING)
        if found != expected:
            raise Difference("rows differ:\n" + "\n".join(differences(found, expected)))
        recount = Counter((job.status, job.held, job.item_type) for job in expected)
        for queue in (self.engine, self.reference):
            if queue.tally() != RowCounts(recount):
                raise Difference(f"{type(queue).__name__} counts {queue.tally()}, the rows are {recount}")
        self.both("paused", timed=False)
        self.both("limits", timed=False)

    @invariant()
    def promises_are_kept(self) -> None:
        jobs = self.reference.find(EVERYTHING)
        broken = breaches(jobs, cut_trees=self.cut_trees)
        for job in jobs:
            if job.claim_number < self.numbers.get(job.queue_id, 0):
                broken.append(f"{job.queue_id}: claim number shrank to {job.claim_number}")
        held = [job for job in jobs if job.held is Held.PAUSE]
        known = self.reference.pauses()
        broken += [f"{job.queue_id}: of no pause" for job in held if not rows.is_kept(job, known)]
        self.numbers = {job.queue_id: job.claim_number for job in jobs}
        if broken:
            raise Difference("the reference broke its promises:\n" + "\n".join(broken))
