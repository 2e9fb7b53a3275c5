"""The Redis engine: many hosts, one server, one Lua script for each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from heapq import merge
from itertools import chain, islice
from typing import Any

import msgspec

from penstock.database import schema
from penstock.errors import DuplicateId, InvalidRequest, StoreError
from penstock.queue.engine import pages_of
from penstock.queue.job import (
    SAME_METADATA,
    AddResult,
    Beat,
    CancelResult,
    Claim,
    ClaimRequest,
    Class,
    FailureGroups,
    Held,
    Job,
    JobQuery,
    NewJob,
    Position,
    QueueLimits,
    RenewResult,
    RequeueResult,
    RowCounts,
    Scope,
    Settlement,
    Status,
    WorkerReport,
    can_answer,
    group_failures,
    tally_answer,
)
from penstock.queue.limits import KEYS_AT_ONCE, Limit
from penstock.queue.protocol import (
    CASCADE_BATCH,
    NO_LIMITS,
    POSITION_CAP,
    Exchange,
    QueueDefaults,
    refuse_uncountable,
)
from penstock.queue.redis import codec
from penstock.queue.redis.server import Server, Subscriptions
from penstock.queue.rules import addition
from penstock.queue.rules.held_jobs import ADMITTED_AT_ONCE
from penstock.queue.rules.rows import (
    FIRST_PAGE,
    MOVED_AT_ONCE,
    RESUME_STEPS,
    NextJob,
    Pause,
    PauseState,
    claim_of,
    first_of_each_lock,
    page,
    paused_scopes,
    refuse_unstorable,
    searched_texts,
    storable,
)
from penstock.queue.schedules import Schedule, decode_schedule, encode_schedule, key_of

_PAGE = 1_000
"""Rows read by one call, which takes the server some milliseconds."""

_SMALL_INDEX = 10_000
"""Largest size of an index in another order than that of ids; it is read whole, and not used above."""

_MOST_FAILURES = 20_000
"""Failed rows that are grouped by reason."""

_STATUS_INDEXES = {
    Status.PENDING: "live",
    Status.IN_PROGRESS: "live",
    Status.DONE: "all",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}
_EQUAL = (
    "item_type op tenant_id collection branch worker_id lock_key limit_key idempotency_key parent_id root_id "
    "waiting_for top_level error_code"
).split()


class RedisQueue(QueueDefaults):
    """A queue on a Redis server. The contract of the methods is in ``queue/protocol.py``."""

    def __init__(self, url: str, *, timeout_s: float = 60, restoring: bool = False) -> None:
        """``restoring``: open the queue even if the last restore was not finished."""
        self._restoring = restoring
        self._server = Server(url, timeout_s=timeout_s)
        self._subscriptions = Subscriptions(self._server)
        self.rows_read = 0
        self._unfinished = False
        """The last claim or resume of this process reached its limit: there is more to do at once."""
        self._resuming = False
        """The last claim saw an active resume."""
        self._stranded_cursor = ("", "")
        """Position of the search for held rows without a pause."""
        self._resolved_after = ""
        """Position of the search for held rows whose dependencies have ended."""
        self._admitted_after = ""
        """Position of the search for rows that wait for limits."""
        try:
            self.migrate()
        except StoreError:
            self.close()
            raise
        schema.register(self)

    def now(self) -> datetime:
        seconds, micros = self._server.call("TIME")
        return codec.EPOCH + timedelta(seconds=int(seconds), microseconds=int(micros))

    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]:
        if connection is not None:
            raise InvalidRequest(
                "this engine has no transactions to join",
                remedy="Leave out connection=, or use a sqlite:/// store.",
            )
        refuse_unstorable(new)
        plain = codec.plain_addition(new[0], limits) if len(new) == 1 else None
        if plain is not None and self._run("add_plain", plain, now):
            return [AddResult(new[0].queue_id, Status.PENDING)]
        waiting = any(item.after for item in new)
        if waiting:
            new = addition.normalized(new)
        what, *answer = self._run("add_waiting" if waiting else "add", codec.addition(new, limits), now)
        if what == b"full":
            raise codec.queue_full(*answer)
        if what in (b"unknown", b"other"):
            raise addition.refused(what.decode(), *(text.decode() for text in answer))
        self._refuse_duplicate(what, answer)
        return [
            AddResult(
                answer[at].decode(), codec.STATUSES[answer[at + 1] - 1], answer[at + 2], answer[at + 3] == 1
            )
            for at in range(0, len(answer), 4)
        ]

    def restore(self, jobs: Sequence[Job]) -> list[str | None]:
        refuse_unstorable(jobs)
        found = self._run("restore", list(map(codec.whole_row, jobs)))
        return [obstacle.decode() or None for obstacle in found]

    @contextmanager
    def dump(self) -> Iterator[Iterator[list[Job]]]:
        yield pages_of(self.find)

    def begin_restore(self) -> None:
        self._server.begin_restore()

    def end_restore(self) -> None:
        self._server.end_restore()

    def restore_unfinished(self) -> bool:
        return self._server.is_marked()

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        claims = self._claims(self._run("claim", codec.claim_request(request), now))
        return self._claim_released(claims, request, now)

    def _claim_released(
        self, claims: list[Claim] | None, request: ClaimRequest, now: datetime | None
    ) -> list[Claim]:
        """Advance an active resume by a batch, and claim the released rows if nothing was claimed."""
        released = self._advance(now, 1) if self._resuming else 0
        if not claims and released:
            claims = self._claims(self._run("claim", codec.claim_request(request), now))
        self._unfinished = self._unfinished or claims is None
        return claims or []

    def upcoming(
        self, *, item_type: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[Job]:
        pages = self._upcoming(item_type or "", now)
        ids = first_of_each_lock(pages, limit, self._pauses())
        found = {job.queue_id: job for job in self._read_rows(ids)}
        return [found[queue_id] for queue_id in ids if queue_id in found]

    def _upcoming(self, item_type: str, now: datetime | None) -> Iterator[list[NextJob]]:
        """Yield due rows, then claimable rows in claim order, a page at a time."""
        first, due, size = 0, True, FIRST_PAGE
        while True:
            read, *rows = self._run("upcoming", (item_type, first, size, due), now)
            texts = [text.decode() for text in rows]
            yield [
                NextJob(texts[at], texts[at + 1] or None, texts[at + 2], texts[at + 3])
                for at in range(0, len(texts), 4)
            ]
            if not due:
                if read < size:
                    return
                first, size = first + read, _PAGE
            due = False

    def start(self, queue_id: str, request: ClaimRequest, *, now: datetime | None = None) -> Claim | None:
        job = self.get(queue_id)
        if job is None:
            return None
        arguments = (queue_id, request.worker_id, codec.duration(request.lease_of(job.item_type)))
        number = self._run("start", arguments, now)
        started = self.get(queue_id) if number else None
        return claim_of(started) if started is not None and started.claim_number == number else None

    def start_all(
        self, ids: Sequence[str], request: ClaimRequest, *, now: datetime | None = None
    ) -> list[Claim]:
        started = (self.start(queue_id, request, now=now) for queue_id in ids)
        return [claim for claim in started if claim is not None]

    def settle(
        self, settlements: Sequence[Settlement], *, now: datetime | None = None
    ) -> list[Status | None]:
        what, *answer = self._run("settle", codec.settlements(settlements), now)
        self._refuse_duplicate(what, answer)
        self._finish(answer[1] or (), answer[2] or (), now)
        return codec.statuses(answer[0])

    def exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> Exchange:
        arguments = (codec.settlements(settlements), codec.claim_request(request))
        answer = self._run("exchange", arguments, now)
        self._refuse_duplicate(answer[0], answer[1:2])
        _, _, digits, parents, places = answer[:5]
        self._finish(parents or (), places or (), now)
        claims = self._claims(answer)
        return Exchange(codec.statuses(digits), self._claim_released(claims, request, now))

    def renew(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[RenewResult]:
        arguments = [
            (
                beat.queue_id,
                beat.claim_number,
                -1 if beat.lease is None else codec.duration(beat.lease),
                False if beat.progress_json is None else beat.progress_json,
            )
            for beat in beats
        ]
        return [RenewResult(flag >= 0, flag == 1) for flag in self._run("renew", arguments, now)]

    def cancel(self, ids: Sequence[str], *, now: datetime | None = None) -> list[CancelResult]:
        statuses, parents, places = self._run("cancel", codec.storable_ids(ids), now)
        self._finish(parents, places, now)
        pairs = zip(ids, statuses[::2], statuses[1::2], strict=True)
        return [
            CancelResult(queue_id, codec.status(was), codec.status(after)) for queue_id, was, after in pairs
        ]

    def requeue(
        self,
        ids: Sequence[str],
        *,
        keep_retries: bool = False,
        metadata: Mapping[str, str] = SAME_METADATA,
        now: datetime | None = None,
    ) -> list[RequeueResult]:
        request = (codec.storable_ids(ids), keep_retries, dict(metadata))
        answer, parents = self._run("requeue", request, now)
        self._cascade("return_children", parents, now)
        triples = zip(ids, answer[::3], answer[1::3], answer[2::3], strict=True)
        return [
            RequeueResult(queue_id, codec.status(was), codec.status(after), obstacle.decode() or None)
            for queue_id, was, after, obstacle in triples
        ]

    def _finish(self, parents: Sequence[bytes], places: Sequence[bytes], now: datetime | None) -> None:
        self._cascade("stop_children", parents, now)
        self._cascade("resolve", places, now)

    def _cascade(self, script: str, parents: Sequence[bytes], now: datetime | None) -> None:
        """Process children in batches, so no script runs longer on a larger tree."""
        waiting = [parent.decode() for parent in parents]
        while waiting:
            last, more = self._run(script, (waiting[0], CASCADE_BATCH), now)
            waiting = (waiting[1:] if last else waiting) + [queue_id.decode() for queue_id in more]

    def prune(
        self,
        ended_before: Mapping[Status, datetime],
        *,
        item_type: str | None = None,
        limit: int = CASCADE_BATCH,
    ) -> int:
        roots = self._ended_roots(ended_before, item_type, limit)
        gone: int = self._run("prune", (roots, limit)) if roots else 0
        return gone

    def _ended_roots(
        self, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int
    ) -> list[tuple[str, int, int]]:
        """List top-level rows without a live descendant, oldest end first: id, status, required end time."""
        found: list[tuple[float, bytes, int, int]] = []
        for status, before in ended_before.items():
            cut, number, at, mine = codec.micros(before), codec.NUMBER_OF[status], 0, 0
            key = self._server.key(f"ended:{status}")
            while mine < limit:
                batch = self._server.call(
                    "ZRANGEBYSCORE", key, "-inf", f"({cut}", "WITHSCORES", "LIMIT", at, min(limit, _PAGE)
                )
                roots = list(zip(batch[::2], map(float, batch[1::2]), strict=True))
                kept = self._prunable([queue_id for queue_id, _ in roots], item_type)
                found += [(score, queue_id, number, cut) for queue_id, score in roots if queue_id in kept]
                mine, at = mine + len(kept), at + len(roots)
                if len(roots) < min(limit, _PAGE):
                    break
        return [(queue_id.decode(), number, cut) for _, queue_id, number, cut in sorted(found)[:limit]]

    def _prunable(self, ids: Sequence[bytes], item_type: str | None) -> set[bytes]:
        prefix = self._server.prefix.encode()
        request: list[tuple[Any, ...]] = []
        for each in ids:
            request += [("ZCOUNT", prefix + b"tree:" + each, 0, 0), ("HGET", prefix + b"job:" + each, "id")]
        answers = self._server.calls(request)
        return {
            queue_id
            for queue_id, alive, who in zip(ids, answers[::2], answers[1::2], strict=True)
            if not alive and who and (item_type is None or codec.texts(who[1:])[0] == item_type)
        }

    def purge(self, jobs: Sequence[Job], *, now: datetime | None = None) -> int:
        arguments = [(job.queue_id, codec.micros(job.updated_at)) for job in jobs]
        gone: int = self._run("purge", arguments, now)
        return gone

    def expire_results(self, *, now: datetime | None = None, limit: int = CASCADE_BATCH) -> int:
        return int(self._run("expire_results", limit, now))

    def scrub(self) -> None:
        """Do nothing: Redis keeps no deleted data."""

    def pause(self, scope: Scope, *, now: datetime | None = None) -> None:  # noqa: ARG002 - as the protocol
        state = codec.encode((PauseState.PAUSED.value,))
        self._server.call(
            "HSET", self._server.key("pauses"), _field(scope.tenant_id, scope.collection), state
        )

    def resume(self, scope: Scope, *, now: datetime | None = None) -> int:
        _, more = self._run("resume", (MOVED_AT_ONCE, _field(scope.tenant_id, scope.collection)), now)
        return self._advance(now, RESUME_STEPS) if more else 0

    def _advance(self, now: datetime | None, steps: int) -> int:
        """Advance the active resume by some batches. Returns the number of released rows."""
        released = 0
        for _ in range(steps):
            batch, more = self._run("advance_resume", (MOVED_AT_ONCE,), now)
            released += int(batch)
            if not more:
                return released
        self._unfinished = True
        return released

    def paused(self) -> frozenset[Scope]:
        return paused_scopes(self._pauses())

    def _pauses(self) -> list[Pause]:
        known = _pairs(self._server.call("HGETALL", self._server.key("pauses")))
        return [
            Pause(Scope(*scope.decode().split("\n")), PauseState(msgspec.msgpack.decode(state)[0]))
            for scope, state in known
        ]

    def get(self, queue_id: str) -> Job | None:
        jobs = self._read_rows([queue_id]) if storable([queue_id]) else []
        return jobs[0] if jobs else None

    def find(self, query: JobQuery) -> list[Job]:
        if not _is_storable_query(query):
            return []
        if query.by_priority:
            everything = msgspec.structs.replace(query, by_priority=False, after=None, after_priority=None)
            return page(query, chain.from_iterable(self._matching(everything)))
        found: list[Job] = []
        for jobs in self._matching(query, query.limit):
            found += jobs
            if len(found) >= query.limit:
                break
        return found[: query.limit]

    def failures(self, query: JobQuery, *, limit: int = 100, now: datetime | None = None) -> FailureGroups:
        moment = now or self.now()
        if not _is_storable_query(query):
            return group_failures((), moment, limit)
        # There is no index of reasons, so a bounded number of the newest failed rows is read.
        failed = msgspec.structs.replace(
            query, statuses=frozenset({Status.FAILED}), newest_first=True, after=None, by_priority=False
        )
        rows = chain.from_iterable(self._matching(failed))
        jobs = [job for job in islice(rows, _MOST_FAILURES + 1) if job.error_reason is not None]
        times = ((job.error_reason or "", job.queue_id, job.last_error_at or job.updated_at) for job in jobs)
        groups = group_failures(times, moment, limit)
        return msgspec.structs.replace(groups, exact=len(jobs) <= _MOST_FAILURES)

    def count(
        self, query: JobQuery, *, by: Sequence[str] = (), cap: int | None = None
    ) -> dict[tuple[Any, ...], int]:
        refuse_uncountable(by)
        if not _is_storable_query(query):
            return {}
        if query.error_reason is not None:
            everything = msgspec.structs.replace(query, after=None, newest_first=False, by_priority=False)
            jobs = chain.from_iterable(self._matching(everything))
            return dict(Counter(tuple(getattr(job, name) for name in by) for job in jobs))
        filters = _filters(query)
        if can_answer(query, by):
            return tally_answer(self.tally().counts, query, by)
        everything = msgspec.structs.replace(query, after=None, newest_first=False)
        counts: Counter[tuple[Any, ...]] = Counter()
        for ids in self._pages(everything, _PAGE):
            answer = self._run("scan", (filters, list(by), _texts(ids), 0))
            for group, number in zip(answer[::2], answer[1::2], strict=True):
                counts[_column_values(by, msgspec.msgpack.decode(group))] += number
            if cap is not None and not by and counts[()] >= cap:
                break
        return dict(counts)

    def position(self, queue_id: str) -> Position | None:
        if not storable([queue_id]):
            return None
        jobs_ahead, *found = self._server.run("position", queue_id)
        if jobs_ahead < 0:
            return None
        jobs, is_request, requests, ahead = found
        numbers = (ahead, requests if is_request else jobs, jobs_ahead)
        return Position(*(min(number, POSITION_CAP) for number in numbers))

    def tally(self) -> RowCounts:
        counts: dict[Class, int] = {}
        for field, number in _pairs(self._server.call("HGETALL", self._server.key("counts"))):
            status, held, item_type = field.decode().split(":", 2)
            if int(number):
                counts[codec.STATUSES[int(status) - 1], codec.HELD[int(held)], item_type] = int(number)
        return RowCounts(counts)

    def oldest(self) -> datetime | None:
        # Generated ids sort by time. The first id after them, given by a client, is checked as well.
        pending = JobQuery(statuses=frozenset({Status.PENDING}), limit=1)
        found = self.find(pending) + self.find(msgspec.structs.replace(pending, after="job_g"))
        return min((job.created_at for job in found), default=None)

    def backlog(self, *, functions: bool, cap: int) -> int:
        count = self._server.call("HGET", self._server.key("backlog"), "f" if functions else "i")
        return min(int(count or 0), cap)

    def busy(self, *, documents: bool = True, now: datetime | None = None) -> bool:
        busy: int = self._server.run("busy", "documents" if documents else "", codec.micros(now))
        return busy == 1

    def expired(self, *, now: datetime | None = None, limit: int = 100) -> list[Job]:
        number = self._moment(now)
        late = self._server.call(
            "ZRANGEBYSCORE", self._server.key("lease"), "-inf", f"({number}", "LIMIT", 0, limit
        )
        jobs = self._rows({"statuses": {codec.NUMBER_OF[Status.IN_PROGRESS]: True}}, late, limit)
        # A lease may have been renewed in between.
        return [job for job in jobs if 0 < codec.micros(job.lease_until) < number]

    def reconcile(self, *, now: datetime | None = None, limit: int = 100) -> int:
        repaired: int
        repaired, to_stop, to_return, places = self._server.run("reconcile", str(limit), codec.micros(now))
        self._finish(to_stop, places, now)
        self._cascade("return_children", to_return, now)
        repaired += self._resolve_again(now)
        return repaired + self._advance(now, RESUME_STEPS) + self._release_stranded(now)

    def _resolve_again(self, now: datetime | None) -> int:
        """Continue dependency cascades cut off by a crash. Returns their number."""
        last, *ended = self._run("unresolved", (self._resolved_after, addition.RESOLVED_AT_ONCE), now)
        self._resolved_after = last.decode()
        self._cascade("resolve", ended, now)
        return len(ended)

    def _release_stranded(self, now: datetime | None) -> int:
        stranded: int
        arguments = (MOVED_AT_ONCE, *self._stranded_cursor)
        stranded, score, member = self._run("stranded", arguments, now)
        self._stranded_cursor = (score.decode(), member.decode())
        return stranded

    def report(self, worker: WorkerReport, *, now: datetime | None = None) -> None:
        seen = msgspec.structs.replace(worker, seen_at=codec.moment(self._moment(now)))
        self._server.call("HSET", self._server.key("workers"), worker.worker_id, msgspec.json.encode(seen))

    def workers(self) -> list[WorkerReport]:
        reports = self._server.call("HVALS", self._server.key("workers"))
        found = [msgspec.json.decode(report, type=WorkerReport) for report in reports]
        return sorted(found, key=lambda worker: worker.worker_id)

    def forget_workers(self, reports: Sequence[WorkerReport]) -> int:
        if not reports:
            return 0
        names = [report.worker_id for report in reports]
        stored = self._server.call("HMGET", self._server.key("workers"), *names)
        unchanged = [
            (report.worker_id, text.decode())
            for report, text in zip(reports, stored, strict=True)
            if text is not None and msgspec.json.decode(text, type=WorkerReport).seen_at == report.seen_at
        ]
        gone: int = self._run("forget_workers", unchanged) if unchanged else 0
        return gone

    def schedules(self, *, tenant_id: str | None = None) -> list[Schedule]:
        found = [decode_schedule(body) for body in self._server.call("HVALS", self._server.key("schedules"))]
        return sorted((one for one in found if tenant_id in (None, one.tenant_id)), key=key_of)

    def due_schedules(self, *, now: datetime | None = None, limit: int = 100) -> list[Schedule]:
        bodies = self._run("due_schedules", limit, now)
        return [decode_schedule(body) for body in bodies]

    def put_schedule(self, schedule: Schedule, *, replaces: int | None = None) -> bool:
        due = codec.micros(schedule.next_at) if schedule.next_at else ""
        request = [_field(*key_of(schedule)), encode_schedule(schedule).decode(), due, replaces or 0]
        return bool(self._run("put_schedule", request))

    def drop_schedule(self, tenant_id: str, name: str) -> bool:
        return bool(self._run("drop_schedule", _field(tenant_id, name)))

    def limits(self) -> list[Limit]:
        found = self._server.call("HGETALL", self._server.key("limits"))
        return sorted((_limit(key, body) for key, body in found.items()), key=lambda limit: limit.key)

    def put_limit(self, limit: Limit, *, now: datetime | None = None) -> bool:
        stored = (limit.concurrent or 0, limit.starts or 0, limit.period_s or 0, 0)
        if not self._run("put_limit", (limit.key, stored), now):
            return False
        while self._run("recall", limit.key, now):
            pass
        self._admit_all([limit.key], now)
        return True

    def drop_limit(self, key: str, *, now: datetime | None = None) -> bool:
        dropped = storable([key]) and bool(self._server.call("HDEL", self._server.key("limits"), key))
        if dropped:
            self._admit_all([key], now)
        return dropped

    def admit(self, *, now: datetime | None = None) -> int:
        start = f"({self._admitted_after}" if self._admitted_after else "-"
        limiters = self._server.key("limiters")
        found = self._server.call("ZRANGEBYLEX", limiters, start, "+", "LIMIT", 0, KEYS_AT_ONCE)
        keys = [key.decode() for key in found]
        self._admitted_after = keys[-1] if len(keys) == KEYS_AT_ONCE else ""
        return self._admit_all(keys, now)

    def _admit_all(self, keys: list[str], now: datetime | None) -> int:
        """Release rows of these keys, key by key in scripts of a bounded length."""
        seen = 0
        for key in keys:
            found = ADMITTED_AT_ONCE
            while found == ADMITTED_AT_ONCE:
                found = int(self._run("admit", key, now))
                seen += found
        return seen

    def slots_of(self, key: str) -> int:
        if not storable([key]):
            return 0
        return min(int(self._server.call("ZCARD", self._server.key(f"admitted:{key}"))), ADMITTED_AT_ONCE)

    def wait(self, timeout: float) -> bool:
        again, self._unfinished = self._unfinished, False
        return again or self._subscriptions.wait(timeout)

    def check(self) -> list[str]:
        return self._server.warnings()

    def migrate(self) -> None:
        self._server.prepare(restoring=self._restoring)

    def close(self) -> None:
        self._subscriptions.close()
        self._server.close()

    def after_fork(self) -> None:
        self._server.after_fork()
        self._subscriptions.after_fork()

    def _run(self, name: str, arguments: object, now: datetime | None = None) -> Any:
        return self._server.run(name, codec.encode(arguments), codec.micros(now))

    def _matching(self, query: JobQuery, limit: int | None = None) -> Iterator[list[Job]]:
        """Yield matching rows by pages of ids, up to ``limit`` of each page.

        A row costs much more than its id. The scripts do not know reasons: those are compared here.
        """
        filters = _filters(query)
        reason = query.error_reason
        size = _PAGE if filters or reason is not None or query.by_priority else min(_PAGE, query.limit)
        most = size if limit is None or reason is not None else min(size, limit)
        for ids in self._pages(query, size):
            jobs = self._rows(filters, ids, most)
            yield jobs if reason is None else [job for job in jobs if job.error_reason == reason]

    def _pages(self, query: JobQuery, size: int) -> Iterator[list[bytes]]:
        few = self._small_index(query)
        if few is not None:
            ordered = sorted({each for each in few if _in_range(query, each)}, reverse=query.newest_first)
            yield from (ordered[at : at + size] for at in range(0, len(ordered), size))
            return
        homes = sorted({_STATUS_INDEXES[status] for status in query.statuses or {Status.DONE}})
        homes = ["all"] if "all" in homes else homes
        after = query.after
        while True:
            low, high = _bounds(query, after)
            verb, first, last = (
                ("ZREVRANGEBYLEX", high, low) if query.newest_first else ("ZRANGEBYLEX", low, high)
            )
            commands = [(verb, self._server.key(home), first, last, "LIMIT", 0, size) for home in homes]
            # Atomic: a row that moves from one index to the other in between must not be missed.
            found = self._run("commands", commands)
            page = list(merge(*found, reverse=query.newest_first))[:size]
            if page:
                yield page
            if len(page) < size:
                return
            after = page[-1].decode()

    def _small_index(self, query: JobQuery) -> list[bytes] | None:
        """Read all candidate ids from one small index; None if no index is small enough."""
        if query.root_id is not None:
            return self._read_indexes([f"tree:{query.root_id}"], [query.root_id.encode()])
        if query.parent_id is not None:
            parents = self._read_rows([query.parent_id])
            return self._read_indexes([f"tree:{parents[0].root_id}"]) if parents else []
        if query.held is Held.TIME:
            return self._read_indexes(["later"])
        if query.waiting:
            return self._read_indexes(["waiting"])
        if query.statuses == {Status.IN_PROGRESS}:
            return self._read_indexes(["lease", "waiting"])
        return None

    def _read_indexes(self, names: Sequence[str], others: Sequence[bytes] = ()) -> list[bytes] | None:
        keys = [self._server.key(name) for name in names]
        if sum(self._server.calls([("ZCARD", key) for key in keys])) > _SMALL_INDEX:
            return None
        found = self._run("commands", [("ZRANGE", key, 0, -1) for key in keys])
        return [*others, *(each for ids in found for each in ids)]

    def _read_rows(self, ids: Sequence[str]) -> list[Job]:
        """Read the existing rows among these ids."""
        return self._rows({}, [queue_id.encode() for queue_id in ids], len(ids)) if ids else []

    def _rows(self, filters: Mapping[str, Any], ids: Sequence[bytes], limit: int) -> list[Job]:
        if not ids:
            return []
        answer = self._run("scan", (filters, "", _texts(ids), limit))
        made = (
            codec.job(queue_id.decode(), dict(zip(codec.FIELDS, fields, strict=True)))
            for queue_id, fields in zip(answer[::2], answer[1::2], strict=True)
        )
        return [job for job in made if job is not None]

    def _claims(self, answer: Sequence[Any]) -> list[Claim] | None:
        flags, self.rows_read = answer[0], answer[1]
        self._resuming = bool(flags & _RESUMING)
        return codec.claims(answer) if flags & _COMPLETE else None

    def _refuse_duplicate(self, what: bytes, answer: Sequence[Any]) -> None:
        if what == b"taken":
            raise DuplicateId(f"a job with id {answer[0].decode()} exists already")

    def _moment(self, now: datetime | None) -> int:
        if now is not None:
            return codec.micros(now)
        seconds, micros = self._server.call("TIME")
        return int(seconds) * 1_000_000 + int(micros)


def _filters(query: JobQuery) -> dict[str, Any]:
    named = {name: getattr(query, name) for name in _EQUAL}
    filters = {name: value for name, value in named.items() if value is not None}
    if query.waiting:
        filters["waiting"] = True
    if query.statuses:
        filters["statuses"] = {codec.NUMBER_OF[status]: True for status in query.statuses}
    if query.text is not None:
        filters["text"] = searched_texts(query.text)
    if query.held is not None:
        filters["held"] = codec.HELD_NUMBER[query.held]
    return filters


def _texts(ids: Sequence[bytes]) -> list[str]:
    return [queue_id.decode() for queue_id in ids]


def _pairs(answer: Any) -> list[tuple[bytes, bytes]]:
    if isinstance(answer, dict):
        return list(answer.items())
    return list(zip(answer[::2], answer[1::2], strict=True))


def _column_values(by: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """Decode column values to the values of a job."""
    return tuple(_value(name, value) for name, value in zip(by, values, strict=True))


def _value(name: str, value: Any) -> Any:
    if name == "status":
        return codec.STATUSES[value - 1]
    if name == "held":
        return codec.HELD[value]
    return None if value == "" else value


def _bounds(query: JobQuery, after: str | None) -> tuple[str, str]:
    prefix, last = query.prefix or "", (query.prefix or "") + "\U0010ffff"
    low, high = ("[" + prefix, "(" + last) if prefix else ("-", "+")
    if after is not None and query.newest_first and (not prefix or after < last):
        high = "(" + after
    if after is not None and not query.newest_first and after >= prefix:
        low = "(" + after
    return low, high


def _in_range(query: JobQuery, queue_id: bytes) -> bool:
    if query.prefix and not queue_id.startswith(query.prefix.encode()):
        return False
    if query.after is None:
        return True
    after = query.after.encode()
    return queue_id < after if query.newest_first else queue_id > after


def _limit(key: bytes, body: bytes) -> Limit:
    concurrent, starts, period_s, next_at = msgspec.msgpack.decode(body)
    return Limit(
        key=key.decode(),
        concurrent=concurrent or None,
        starts=starts or None,
        period_s=period_s or None,
        next_at=codec.moment(next_at),
    )


def _field(tenant_id: str, name: str) -> str:
    """The field of a schedule or a paused scope. Neither text holds a line break."""
    return f"{tenant_id}\n{name}"


_COMPLETE, _RESUMING = 1, 2
"""Flags of a claim's answer: all candidates were seen; a resume is active."""


def _is_storable_query(query: JobQuery) -> bool:
    return storable(getattr(query, name) for name in query.__struct_fields__)
