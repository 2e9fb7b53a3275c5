"""The Redis engine: many hosts, one server, one Lua script for each change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.errors import DuplicateId, InvalidRequest, StoreError
from penstock.failure_reasons import FailureGroups, group_failures
from penstock.job import (
    SAME_METADATA,
    AddResult,
    Beat,
    CancelResult,
    Claim,
    ClaimRequest,
    Job,
    JobQuery,
    NewJob,
    Position,
    QueueLimits,
    RenewResult,
    RequeueResult,
    Scope,
    Settlement,
    Status,
    WorkerReport,
)
from penstock.queue import fork_hooks
from penstock.queue.engine import pages_of
from penstock.queue.exchange import Exchange, NoSentExchanges
from penstock.queue.positions import CountedAdditions
from penstock.queue.protocol import CASCADE_BATCH, NO_LIMITS, refuse_uncountable
from penstock.queue.redis import codec, queries, server_check
from penstock.queue.redis.limits import RedisLimits
from penstock.queue.redis.schedules import RedisSchedules
from penstock.queue.redis.server import Server
from penstock.queue.redis.subscription import Subscriptions
from penstock.queue.rules import dependencies, pauses
from penstock.queue.rules.next_jobs import claim_of, first_of_each_lock
from penstock.queue.rules.pauses import PauseState
from penstock.queue.rules.rows import refuse_unstorable, storable
from penstock.row_counts import RowCounts

COMPLETE, RESUMING = 1, 2
"""Flags of a claim's answer: all candidates were seen; a resume is active."""


class RedisQueue(RedisSchedules, RedisLimits, CountedAdditions, NoSentExchanges):
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
        try:
            self.migrate()
        except StoreError:
            self.close()
            raise
        fork_hooks.register(self)

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
            new = dependencies.normalized(new)
        what, *answer = self._run("add_waiting" if waiting else "add", codec.addition(new, limits), now)
        if what == b"full":
            raise codec.queue_full(*answer)
        if what in (b"unknown", b"other"):
            raise dependencies.refused(what.decode(), *(text.decode() for text in answer))
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
        server_check.begin_restore(self._server)

    def end_restore(self) -> None:
        server_check.end_restore(self._server)

    def restore_unfinished(self) -> bool:
        return server_check.is_marked(self._server)

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
        pages = queries.upcoming(self._server, item_type or "", codec.micros(now))
        ids = first_of_each_lock(pages, limit, queries.pauses(self._server))
        found = {job.queue_id: job for job in queries.read_rows(self._server, ids)}
        return [found[queue_id] for queue_id in ids if queue_id in found]

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
        roots = queries.ended_roots(self._server, ended_before, item_type, limit)
        gone: int = self._run("prune", (roots, limit)) if roots else 0
        return gone

    def purge(self, jobs: Sequence[Job], *, now: datetime | None = None) -> int:
        arguments = [(job.queue_id, codec.micros(job.updated_at)) for job in jobs]
        gone: int = self._run("purge", arguments, now)
        return gone

    def scrub(self) -> None:
        """Do nothing: Redis keeps no deleted data."""

    def pause(self, scope: Scope, *, now: datetime | None = None) -> None:  # noqa: ARG002 - as the protocol
        state = codec.encode((PauseState.PAUSED.value,))
        self._server.call("HSET", self._server.key("pauses"), _field(scope), state)

    def resume(self, scope: Scope, *, now: datetime | None = None) -> int:
        _, more = self._run("resume", (pauses.MOVED_AT_ONCE, _field(scope)), now)
        return self._advance(now, pauses.RESUME_STEPS) if more else 0

    def _advance(self, now: datetime | None, steps: int) -> int:
        """Advance the active resume by some batches. Returns the number of released rows."""
        released = 0
        for _ in range(steps):
            batch, more = self._run("advance_resume", (pauses.MOVED_AT_ONCE,), now)
            released += int(batch)
            if not more:
                return released
        self._unfinished = True
        return released

    def paused(self) -> frozenset[Scope]:
        return pauses.paused_scopes(queries.pauses(self._server))

    def get(self, queue_id: str) -> Job | None:
        jobs = queries.read_rows(self._server, [queue_id]) if storable([queue_id]) else []
        return jobs[0] if jobs else None

    def find(self, query: JobQuery) -> list[Job]:
        return queries.find(self._server, query) if _is_storable_query(query) else []

    def failures(self, query: JobQuery, *, limit: int = 100, now: datetime | None = None) -> FailureGroups:
        moment = now or self.now()
        if not _is_storable_query(query):
            return group_failures((), moment, limit)
        return queries.failures(self._server, query, moment, limit)

    def count(
        self, query: JobQuery, *, by: Sequence[str] = (), cap: int | None = None
    ) -> dict[tuple[Any, ...], int]:
        refuse_uncountable(by)
        return queries.count(self._server, query, by, cap) if _is_storable_query(query) else {}

    def position(self, queue_id: str) -> Position | None:
        return queries.position(self._server, queue_id) if storable([queue_id]) else None

    def tally(self) -> RowCounts:
        return RowCounts(queries.tally(self._server))

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
        return queries.expired(self._server, self._moment(now), limit)

    def reconcile(self, *, now: datetime | None = None, limit: int = 100) -> int:
        repaired: int
        repaired, to_stop, to_return, places = self._server.run("reconcile", str(limit), codec.micros(now))
        self._finish(to_stop, places, now)
        self._cascade("return_children", to_return, now)
        repaired += self._resolve_again(now)
        return repaired + self._advance(now, pauses.RESUME_STEPS) + self._release_stranded(now)

    def _resolve_again(self, now: datetime | None) -> int:
        """Continue dependency cascades cut off by a crash. Returns their number."""
        last, *ended = self._run("unresolved", (self._resolved_after, dependencies.RESOLVED_AT_ONCE), now)
        self._resolved_after = last.decode()
        self._cascade("resolve", ended, now)
        return len(ended)

    def _release_stranded(self, now: datetime | None) -> int:
        stranded: int
        arguments = (pauses.MOVED_AT_ONCE, *self._stranded_cursor)
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

    def wait(self, timeout: float) -> bool:
        again, self._unfinished = self._unfinished, False
        return again or self._subscriptions.wait(timeout)

    def check(self) -> list[str]:
        return server_check.warnings(self._server)

    def migrate(self) -> None:
        server_check.prepare(self._server, restoring=self._restoring)

    def close(self) -> None:
        self._subscriptions.close()
        self._server.close()

    def after_fork(self) -> None:
        self._server.after_fork()
        self._subscriptions.after_fork()

    def _run(self, name: str, arguments: object, now: datetime | None = None) -> Any:
        return self._server.run(name, codec.encode(arguments), codec.micros(now))

    def _claims(self, answer: Sequence[Any]) -> list[Claim] | None:
        flags, self.rows_read = answer[0], answer[1]
        self._resuming = bool(flags & RESUMING)
        return codec.claims(answer) if flags & COMPLETE else None

    def _refuse_duplicate(self, what: bytes, answer: Sequence[Any]) -> None:
        if what == b"taken":
            raise DuplicateId(f"a job with id {answer[0].decode()} exists already")

    def _moment(self, now: datetime | None) -> int:
        if now is not None:
            return codec.micros(now)
        seconds, micros = self._server.call("TIME")
        return int(seconds) * 1_000_000 + int(micros)


def _field(scope: Scope) -> str:
    return f"{scope.tenant_id}\n{scope.collection}"


def _is_storable_query(query: JobQuery) -> bool:
    return storable(getattr(query, name) for name in query.__struct_fields__)
