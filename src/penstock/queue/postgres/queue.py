"""The PostgreSQL engine: workers on many hosts, one server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import psycopg

from penstock.database import postgres_schema
from penstock.database.postgres_connections import PostgresConnections, ServerClock
from penstock.errors import StoreError
from penstock.failure_reasons import FailureGroups
from penstock.job import (
    AddResult,
    Beat,
    Claim,
    ClaimRequest,
    Job,
    JobQuery,
    NewJob,
    Position,
    QueueLimits,
    RenewResult,
    Scope,
    Settlement,
    Status,
    WorkerReport,
)
from penstock.queue.exchange import Exchange, SentExchange
from penstock.queue.positions import Lengths
from penstock.queue.postgres.addition import try_add
from penstock.queue.postgres.claim import ClaimResult, PostgresClaim, try_claim_alone
from penstock.queue.postgres.joined_transaction import joined
from penstock.queue.postgres.listener import PostgresListener
from penstock.queue.postgres.pause_rows import PLANS
from penstock.queue.postgres.row_tally import tally
from penstock.queue.postgres.rows import PostgresRows
from penstock.queue.postgres.sent_exchange import PlainExchange, UnreadExchange, fits_unread
from penstock.queue.postgres.transaction import transact
from penstock.queue.postgres.values import as_pause, column_value, decoded
from penstock.queue.postgres.whole_store import PostgresStore
from penstock.queue.protocol import NO_LIMITS, POSITION_CAP, refuse_uncountable
from penstock.queue.rules import addition, pauses, settlement
from penstock.queue.rules.dependencies import refuse_joined
from penstock.queue.rules.limits import pass_over_limited
from penstock.queue.rules.next_jobs import first_of_each_lock
from penstock.queue.rules.rows import storable
from penstock.queue.rules.settlement import Leftovers
from penstock.queue.sql import filters
from penstock.queue.sql.statements import LOCK_CAP
from penstock.row_counts import RowCounts

T = TypeVar("T")

MAX_CANDIDATES = 10_000
"""Largest number of candidates that a claim reads at once."""

OPEN_TOO_LONG_S = 300
"""Limit for open transactions: the server cannot remove dead rows that an older transaction may see."""


class PostgresQueue(PostgresStore):
    """A queue in a PostgreSQL schema. The contract of the methods is in ``queue/protocol.py``."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 4,
        pooled: bool = False,
        timeout_s: float = 60,
        restoring: bool = False,
    ) -> None:
        """``restoring``: open a schema even if the last restore was not finished."""
        self._schema = postgres_schema.QUEUE._replace(restoring=restoring)
        self.rows_read = 0
        self._connections = PostgresConnections(
            url, size=pool_size, pooled=pooled, timeout_s=timeout_s, plans=PLANS
        )
        self._clock = ServerClock(self._connections)
        self._channel = ""
        self._max_candidates = MAX_CANDIDATES
        self._plain = True
        """True if the last claim was plain, so that the next tries the fast path."""
        self._plain_ends = True
        """True if the last jobs that ended were plain, so that the next exchange can be sent."""
        self._fits_unread = True
        """True if the last claims were small enough for a result that is read later."""
        self._listener = PostgresListener(self._connections, lambda: self._channel, self._any_claimable)
        self._all_paused = False
        """True if the last claim found everything paused, so that the next reads pauses first."""
        try:
            self.migrate()
        except StoreError:
            self._connections.close()
            raise

    def now(self) -> datetime:
        return self._clock.now()

    def _write(self, what: str, work: Callable[[PostgresRows], T]) -> T:  # noqa: ARG002 - as the engine's
        return transact(self._connections, self._channel, PostgresRows, work)

    @contextmanager
    def _reading(self) -> Iterator[PostgresRows]:
        with self._connections.session() as connection:
            yield PostgresRows(connection)

    def add(
        self,
        new: Sequence[NewJob],
        *,
        limits: QueueLimits = NO_LIMITS,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AddResult]:
        moment = now or self.now()
        if connection is None:
            if try_add(self._connections, self._channel, new, limits, moment):
                return [AddResult(each.queue_id, Status.PENDING) for each in new]
            return super().add(new, limits=limits, now=moment)
        refuse_joined(new)
        with joined(connection, self._connections, self._channel) as rows:
            return addition.add(rows, new, limits, moment)

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        return self.exchange([], request, now=now).claims

    def exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> Exchange:
        moment = now or self.now()
        if not settlements and self._expects_plain(request) and not self._connections.pooled:
            alone, self.rows_read = try_claim_alone(self._connections, request, moment)
            self._plain = alone is not None
            if alone is not None:
                self._resuming, self._fits_unread = False, fits_unread(alone)
                return Exchange([], alone)

        def work(rows: PostgresRows) -> tuple[list[Status | None], Leftovers, ClaimResult | None]:
            return self._settle_and_take(rows, settlements, request, moment)

        answers, left, taken = self._write("exchange", work)
        self._finish(left, moment)
        claims = taken.claims() if taken is not None else []
        if taken is None or not taken.complete:
            claims = self._fill_up(claims, request, moment)
        if self._advance_after_claim(claims, moment):
            claims = self._fill_up(claims, request, moment)
        self._fits_unread = fits_unread(claims)
        return Exchange(answers, claims)

    def send_exchange(
        self, settlements: Sequence[Settlement], request: ClaimRequest, *, now: datetime | None = None
    ) -> SentExchange | None:
        plain = self._plain_ends and self._fits_unread and self._expects_plain(request)
        # One connection is in use until the result is read.
        spare = self._connections.size > 1 and not self._connections.pooled
        if not (plain and spare and _all_done(settlements)) or self._all_paused:
            return None
        try:
            unread = UnreadExchange(self._connections, settlements, request, now or self.now())
        except psycopg.Error:
            return None
        return PlainExchange(
            unread,
            settlements,
            settle=partial(self.settle, now=now),
            repeat=partial(self.exchange, settlements, request, now=now),
            record=self._record_sent,
        )

    def _record_sent(self, *, claims: bool, ends: bool, rows_read: int) -> None:
        self._plain, self._plain_ends, self.rows_read, self._resuming = claims, ends, rows_read, False

    def _fill_up(self, claims: list[Claim], request: ClaimRequest, now: datetime) -> list[Claim]:
        """Claim again after rows were held back, up to the limit."""
        before = len(claims)
        if before == request.limit:
            return claims
        more = self._write("claim", lambda rows: self._claim(rows, request, now, before=before))
        self._unfinished = self._unfinished or more is None
        return claims + (more or [])

    def _settle_and_take(
        self, rows: PostgresRows, settlements: Sequence[Settlement], request: ClaimRequest, now: datetime
    ) -> tuple[list[Status | None], Leftovers, ClaimResult | None]:
        """Settle and claim; in two round trips if all jobs are plain."""
        if not _all_done(settlements) or request.oldest or self._all_paused:
            answers, left = self._settled(rows, settlements, now)
            return answers, left, self._claim_rest(rows, request, now, [])
        sent = rows.send_finish("finish_and_wake", settlements, now) if settlements else None
        claim = PostgresClaim(rows, request, now)
        fast = claim.try_fast_claim() if self._expects_plain(request) else None
        sent_candidates = claim.send_candidates(self._max_candidates) if fast is None else None
        finished = rows.read_finished(sent) if sent else None
        claims: list[Claim] | None = None
        if fast is not None:
            claims = claim.read_fast_claim(fast)
            self._plain, self.rows_read, self._resuming = claim.plain, claim.rows_read, False
        self._plain_ends = not finished or (
            len(finished.ids) == len(settlements) and not any(finished.parents)
        )
        if not self._plain_ends:
            answers, left = self._settled(rows, settlements, now)
            return answers, left, self._claim_rest(rows, request, now, claims or [])
        rows.to_wake.update(finished.freed if finished else ())
        answers = [Status.DONE] * len(settlements)
        if claims is not None:
            return answers, Leftovers(), ClaimResult(claims)
        taken = claim.take(sent_candidates or claim.send_candidates(self._max_candidates))
        pass_over_limited(rows, now)
        self._plain, self.rows_read = claim.plain, claim.rows_read
        self._all_paused, self._resuming = claim.all_paused, claim.resuming
        # If every row wants a lock, a larger read would lock rows that cannot be taken.
        self._max_candidates = LOCK_CAP if claim.keyed >= LOCK_CAP else MAX_CANDIDATES
        return answers, Leftovers(), taken

    def _expects_plain(self, request: ClaimRequest) -> bool:
        return self._plain and not request.oldest and not request.lease_by_type

    def _claim_rest(
        self, rows: PostgresRows, request: ClaimRequest, now: datetime, claims: list[Claim]
    ) -> ClaimResult | None:
        """Claim more rows in the same transaction, up to the limit."""
        if len(claims) == request.limit:
            return ClaimResult(claims)
        more = self._claim(rows, request, now, before=len(claims))
        return ClaimResult(claims + (more or [])) if claims or more is not None else None

    def _claim(
        self, rows: PostgresRows, request: ClaimRequest, now: datetime, *, before: int = 0
    ) -> list[Claim] | None:
        claim = PostgresClaim(rows, request, now, before=before)
        claims = claim.run()
        pass_over_limited(rows, now)
        self.rows_read = claim.rows_read
        self._all_paused, self._resuming = claim.all_paused, claim.resuming
        return claims

    def renew(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[RenewResult]:
        moment = now or self.now()
        return self._write("renew", lambda rows: rows.renew(beats, moment))

    def upcoming(
        self, *, item_type: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[Job]:
        moment = now or self.now()
        with self._reading() as rows:
            rows.execute("BEGIN READ ONLY", {})
            try:
                # Without statistics the planner assumes a short queue, and sorts all of it.
                rows.execute("SET LOCAL enable_sort = off", {})
                pages = rows.upcoming(item_type, moment)
                # Without row locks, which a read-only transaction cannot take.
                known = [as_pause(*row) for row in rows.fetch("pauses")]
                return rows.jobs_of(first_of_each_lock(pages, limit, known))
            finally:
                rows.execute("COMMIT", {})

    def paused(self) -> frozenset[Scope]:
        with self._reading() as rows:
            return pauses.paused_scopes(as_pause(*row) for row in rows.fetch("pauses"))

    def get(self, queue_id: str) -> Job | None:
        if not storable([queue_id]):
            return None
        with self._reading() as rows:
            return rows.peek(queue_id)

    def find(self, query: JobQuery) -> list[Job]:
        statement, values = filters.find(query, "postgres")
        return [decoded(row) for row in self._select(statement, values)]

    def failures(self, query: JobQuery, *, limit: int = 100, now: datetime | None = None) -> FailureGroups:
        return filters.failures(self._select, query, "postgres", limit, now or self.now())

    def count(
        self, query: JobQuery, *, by: Sequence[str] = (), cap: int | None = None
    ) -> dict[tuple[Any, ...], int]:
        refuse_uncountable(by)
        statement, values = filters.count(query, "postgres", by, cap)
        return filters.groups_of(self._select(statement, values), by, column_value)

    def _select(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        if not storable(values):
            return []
        with self._reading() as rows, rows.connection.pipeline():
            # A query of a user may match no index.
            if not self._connections.pooled:
                rows.execute("BEGIN READ ONLY", {})
            rows.execute("SET LOCAL enable_seqscan = on", {})
            rows.execute("SET LOCAL enable_bitmapscan = on", {})
            rows.execute("SET LOCAL plan_cache_mode = auto", {})
            found = rows.execute(statement.replace("?", "%s"), values)
            if not self._connections.pooled:
                rows.execute("COMMIT", {})
        return found.fetchall()

    def position(self, queue_id: str) -> Position | None:
        job = self.get(queue_id)
        if job is None or job.status is not Status.PENDING:
            return None
        place = {"priority": job.priority, "turn": job.turn, "created_at": job.created_at}
        with self._reading() as rows:
            ahead: int = rows.scalar("ahead_above", priority=job.priority, cap=POSITION_CAP)
            ahead += rows.scalar("ahead_within", **place, queue_id=queue_id, cap=POSITION_CAP - ahead)
            lengths = Lengths(*rows.fetch("lengths", cap=POSITION_CAP)[0])
            return lengths.position(
                ahead,
                job.is_request,
                lambda: rows.scalar("requests_ahead", **place, queue_id=queue_id, cap=POSITION_CAP),
                POSITION_CAP,
            )

    def tally(self) -> RowCounts:
        with self._reading() as rows:
            return tally(rows)

    def oldest(self) -> datetime | None:
        with self._reading() as rows:
            oldest: datetime | None = rows.scalar("oldest")
            return oldest

    def backlog(self, *, functions: bool, cap: int) -> int:
        with self._reading() as rows:
            return rows.backlog(functions=functions, tenant_id=None, cap=cap)

    def busy(self, *, documents: bool = True, now: datetime | None = None) -> bool:
        moment = now or self.now()
        with self._reading() as rows:
            return (
                bool(rows.scalar("any_claimable"))
                or (rows.scalar("any_limited") and not pauses.everything_paused(rows.seen_pauses()))
                or bool(rows.scalar("any_leased"))
                or (documents and bool(rows.scalar("any_waiting")))
                or bool(rows.scalar("any_returning", now=moment) or rows.scalar("any_reserved"))
            )

    def expired(self, *, now: datetime | None = None, limit: int = 100) -> list[Job]:
        moment = now or self.now()
        with self._reading() as rows:
            return [decoded(row) for row in rows.fetch("expired", now=moment, limit=limit)]

    def report(self, worker: WorkerReport, *, now: datetime | None = None) -> None:
        values = {
            "worker_id": worker.worker_id,
            "host": worker.host,
            "pid": worker.pid,
            "started_at": worker.started_at,
            "seen_at": now or self.now(),
            "info_json": worker.info_json,
        }
        self._write("report", lambda rows: rows.send("report", **values))

    def workers(self) -> list[WorkerReport]:
        with self._reading() as rows:
            found = rows.fetch("workers")
        names = "worker_id host pid started_at seen_at info_json".split()
        return [WorkerReport(**dict(zip(names, row, strict=True))) for row in found]

    def forget_workers(self, reports: Sequence[WorkerReport]) -> int:
        def forget(rows: PostgresRows) -> int:
            gone = (
                rows.fetch("forget_worker", worker_id=each.worker_id, seen_at=each.seen_at)
                for each in reports
            )
            return sum(map(len, gone))

        return self._write("forget_workers", forget)

    def wait(self, timeout: float) -> bool:
        if self._has_unfinished_work():
            return True
        return self._listener.wait(timeout)

    def _any_claimable(self) -> bool:
        with self._reading() as rows:
            return bool(rows.scalar("any_claimable"))

    def check(self) -> list[str]:
        with self._reading() as rows:
            postgres_schema.verify(rows.connection, self._connections.name, self._schema)
            settings: dict[str, str] = dict(rows.fetch("durability"))
            left_open = rows.fetch("open_transactions", seconds=OPEN_TOO_LONG_S)
            read_only = rows.scalar("read_only")
        name = self._connections.name
        return (
            [f"{name} can only be read now: workers wait until it can be written"] * bool(read_only)
            + [
                f"{name} runs with {setting} = off: a power cut can lose what was acknowledged"
                for setting, value in sorted(settings.items())
                if value == "off"
            ]
            + [
                f"{name} has a transaction open for {seconds // 60} minutes (process {pid}): "
                "claims slow down until it ends"
                for pid, seconds in left_open
            ]
        )

    def close(self) -> None:
        self._listener.close()
        self._connections.close()


def _all_done(settlements: Sequence[Settlement]) -> bool:
    return all(each.status is Status.DONE for each in settlements) and settlement.each_once(settlements)
