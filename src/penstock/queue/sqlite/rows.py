"""Rows of a SQLite queue inside one transaction, as the rules use them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from penstock import clock
from penstock.clock import format_new_time, format_time, read_time
from penstock.database.sqlite import CURSOR
from penstock.errors import DuplicateId
from penstock.queue import transitions
from penstock.queue.job import (
    Beat,
    Changes,
    Held,
    Job,
    NewJob,
    Position,
    QueueLimits,
    RenewResult,
    Scope,
    Settlement,
    Status,
    begins_to_expire,
    kept_until,
)
from penstock.queue.limits import Limit, decode_limit, encode_limit, gated, touches
from penstock.queue.protocol import NO_LIMITS, POSITION_CAP
from penstock.queue.rules.rows import (
    ABOVE_ALL,
    LARGEST_PAGE,
    ChildCount,
    ClaimPosition,
    Finished,
    NextJob,
    Pause,
    PauseState,
    RowPosition,
    pages,
    storable,
)
from penstock.queue.sql.statements import CHANGING_COLUMNS, INSERTED_COLUMNS, JOB_COLUMNS, ROWS_AT_ONCE, load
from penstock.queue.transitions import dependencies_of

SPILL_OVER = 2_048
"""Longer payloads are in their own table, because SQLite rewrites a whole row at each change."""

SPILLED = "null"
"""Stands for such a payload in its row: JSON that every program can read, but never a payload."""

AT_ONCE = 4
"""Rows from which on one statement for all is cheaper than one for each: it decodes a list."""

_TIMES = "created_at updated_at run_at lease_until started_at finished_at last_error_at limit_at".split()
_TIME_AT = tuple(JOB_COLUMNS.index(name) for name in _TIMES)
_FLAG_AT = tuple(JOB_COLUMNS.index(name) for name in ("dedupe", "lock_held", "cancel_requested", "awaited"))
_STATUS_AT = JOB_COLUMNS.index("status")
_HELD_AT = JOB_COLUMNS.index("held")
_PAYLOAD_AT = JOB_COLUMNS.index("payload_json")
_STATUSES = {status.value: status for status in Status}
_HELD = {held.value: held for held in Held}
_ENCODED = {True: 1, False: 0}
_inserted = attrgetter(*INSERTED_COLUMNS)
_CREATED_IN, _UPDATED_IN, _RUN_IN, _HELD_IN, _DEDUPE_IN, _PAYLOAD_IN = map(
    INSERTED_COLUMNS.index, ("created_at", "updated_at", "run_at", "held", "dedupe", "payload_json")
)


SQL = load("sqlite")

_RESULTS_AT_ONCE = 1_000_000
"""Longest results of a batch that one statement carries."""

_encode = msgspec.json.Encoder().encode


class SqliteRows:
    """Rows of one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.cursor = connection.cursor(CURSOR)
        # The connection of a caller may have another row factory.
        self.cursor.row_factory = None
        self._known_pauses: list[Pause] | None = None
        self.limit_keys: set[str] = set()
        self.limited_locks: set[str] = set()

    def _one(self, name: str, *values: object) -> Job | None:
        row = self.cursor.execute(SQL[name], values).fetchone()
        return self._job(row) if row else None

    def _many(self, name: str, *values: object) -> list[Job]:
        return self.select(SQL[name], values)

    def select(self, statement: str, values: Sequence[object]) -> list[Job]:
        return [self._job(row) for row in self.cursor.execute(statement, values).fetchall()]

    def scalar(self, name: str, *values: object) -> Any:
        row = self.cursor.execute(SQL[name], values).fetchone()
        return row[0] if row else None

    def _job(self, row: tuple[Any, ...]) -> Job:
        return _decoded(row, self.payload)

    def payload(self, queue_id: str) -> str:
        text: str | None = self.scalar("load_payload", queue_id)
        return SPILLED if text is None else text

    def get(self, queue_id: str) -> Job | None:
        return self._one("get", queue_id) if storable([queue_id]) else None

    peek = get

    def lock_rows(self, ids: Collection[str]) -> None:
        """Do nothing: the transaction locks the whole file."""

    def live(self, tenant_id: str, branch: str, key: str) -> Job | None:
        return self._one("live", tenant_id, branch, key)

    def refuse_taken(self, new: Sequence[NewJob], parent: Job | None = None) -> None:
        """Do nothing: the primary key refuses duplicates, and the transaction is rolled back."""

    def try_insert(self, job: Job) -> bool:
        statement = SQL["insert_job"] if job.parent_id is None else SQL["insert_child"]
        try:
            inserted = self.cursor.execute(statement, _as_new(job)).rowcount == 1
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
                raise
            raise DuplicateId(f"a job with id {job.queue_id} exists already") from error
        if inserted and len(job.payload_json) > SPILL_OVER:
            self.cursor.execute(SQL["save_payload"], (job.queue_id, job.payload_json))
        return inserted

    def insert(self, job: Job) -> None:
        self.cursor.execute(SQL["insert_row"], encoded(job))
        self._record_dependencies(job)
        if job.limit_key is not None and job.held is Held.LIMIT:
            self.limit_keys.add(job.limit_key)
        if begins_to_expire(None, job):
            self._record_due_result(job)
        if len(job.payload_json) > SPILL_OVER:
            self.cursor.execute(SQL["save_payload"], (job.queue_id, job.payload_json))

    def change(self, job: Job, changes: Changes) -> Job:
        if job.limit_key is not None:
            changes = gated(job, changes)
        changed = msgspec.structs.replace(job, **changes)
        if job.limit_key is not None and touches(job, changed):
            self.limit_keys.add(job.limit_key)
        row = dict(zip(JOB_COLUMNS, encoded(changed), strict=True))
        if changed.payload_json == job.payload_json:
            # It stays where it is: a row that another program inserted may have a long one.
            row["payload_json"] = None
        values = [row[name] for name in CHANGING_COLUMNS]
        self.cursor.execute(SQL["update"], (*values, job.queue_id))
        if changed.payload_json != job.payload_json and len(changed.payload_json) > SPILL_OVER:
            self.cursor.execute(SQL["save_payload"], (job.queue_id, changed.payload_json))
        if changed.held is not job.held and Held.AFTER in (changed.held, job.held):
            self._record_dependencies(changed)
        if changed.result_ttl_s is not None and begins_to_expire(job, changed):
            self._record_due_result(changed)
        return changed

    def _record_due_result(self, job: Job) -> None:
        if (until := kept_until(job)) is not None:
            self.cursor.execute(SQL["add_due_result"], (format_time(until), job.queue_id))

    def due_results(self, now: datetime, limit: int) -> list[str]:
        found = self.cursor.execute(SQL["due_results"], (format_time(now), limit)).fetchall()
        return [queue_id for (queue_id,) in found]

    def drop_due_results(self, ids: Sequence[str], now: datetime) -> None:
        self.cursor.execute(SQL["drop_due_results"], (format_time(now), as_list(ids)))

    def _record_dependencies(self, job: Job) -> None:
        if job.held is Held.AFTER:
            pairs = [(queue_id, job.queue_id) for queue_id in dependencies_of(job).after]
            self.cursor.executemany(SQL["add_dependency"], pairs)
        elif job.after_json is not None:
            self.cursor.execute(SQL["drop_dependencies"], (job.queue_id,))

    def dependents(self, queue_id: str, after: str, limit: int) -> list[Job]:
        return self._many("dependents", queue_id, after, limit)

    def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        found = self.cursor.execute(SQL["statuses"], (as_list(ids),)).fetchall() if ids else []
        return {queue_id: _STATUSES[status] for queue_id, status in found}

    def awaited_rows(self, after: str, limit: int) -> list[str]:
        found = self.cursor.execute(SQL["awaited_rows"], (after, limit)).fetchall()
        return [queue_id for (queue_id,) in found]

    def finish(self, settlements: Sequence[Settlement], now: datetime) -> Finished:
        """End the plain claims among these as done."""
        plain = self._plain_claims([each.queue_id for each in settlements])
        rows = [plain.get((each.queue_id, each.claim_number)) for each in settlements]
        ended = [(row, each) for row, each in zip(rows, settlements, strict=True) if row is not None]
        if ended:
            self._end({row[0]: each.result_json for row, each in ended}, format_time(now))
        parents = [(row[3], row[4], each.result_json) for row, each in ended if row[3] is not None]
        return Finished([row is not None for row in rows], parents=parents)

    def _plain_claims(self, ids: Sequence[str]) -> dict[tuple[str, int], tuple[Any, ...]]:
        """Read the rows for the plain path, by id and claim number."""
        name, value = ("plain_claim", ids[0]) if len(ids) == 1 else ("plain_claims", as_list(ids))
        return {(row[1], row[2]): row for row in self.cursor.execute(SQL[name], (value,)).fetchall()}

    def _end(self, results: dict[int, str | None], at: str) -> None:
        """End rows, given by number, each with its result.

        An UPDATE opens every index that it may change, which costs more than the change of one row. Run once
        for a batch instead of once for each job, it takes half the time.
        """
        if len(results) >= AT_ONCE:
            if not any(results.values()):
                self.cursor.execute(SQL["finish_all"], (at, at, as_list(results)))
                return
            text = _encode(results)
            # SQLite cuts a text at a NUL that it reads from JSON.
            if len(text) <= _RESULTS_AT_ONCE and b"\\u0000" not in text:
                self.cursor.execute(SQL["finish_each"], (at, at, text.decode()))
                return
        self.cursor.executemany(SQL["finish"], [(result, at, at, row) for row, result in results.items()])

    def renew(self, beat: Beat, now: datetime) -> RenewResult:
        claim = (beat.queue_id, beat.claim_number)
        row = self.cursor.execute(SQL["claim_state"], claim).fetchone()
        if row is None:
            return RenewResult(held=False)
        if beat.lease is not None:
            self.cursor.execute(SQL["renew_lease"], (format_time(now + beat.lease), *claim))
        if beat.progress_json is not None:
            self.cursor.execute(SQL["renew_progress"], (beat.progress_json, format_time(now), *claim))
        return RenewResult(held=True, cancel_requested=row[0] == 1)

    def pauses(self, *, to_change: bool = False) -> list[Pause]:  # noqa: ARG002 - the file is locked
        if self._known_pauses is None:
            self._known_pauses = [_pause(*row) for row in self.cursor.execute(SQL["pauses"]).fetchall()]
        return self._known_pauses

    seen_pauses = pauses

    def limit(self, key: str) -> Limit | None:
        body = self.scalar("limit_body", key)
        return decode_limit(body) if body else None

    def all_limits(self) -> list[Limit]:
        return [decode_limit(body) for (body,) in self.cursor.execute(SQL["all_limits"]).fetchall()]

    def set_limit(self, limit: Limit) -> None:
        self.cursor.execute(SQL["set_limit"], (limit.key, encode_limit(limit).decode()))

    def drop_limit(self, key: str) -> bool:
        return bool(self.cursor.execute(SQL["drop_limit"], (key,)).fetchall())

    def slots(self, key: str, most: int, most_unclaimed: int, until: datetime) -> tuple[int, int]:
        values = (key, most, format_time(until), most_unclaimed)
        started, reserved, unclaimed, ahead = self.cursor.execute(SQL["slots"], values).fetchone()
        return min(started + reserved, most), min(unclaimed + ahead, most_unclaimed)

    def limited_rows(self, key: str, number: int) -> list[Job]:
        return self._many("limited_rows", key, number)

    def unclaimed_rows(self, key: str, number: int) -> list[Job]:
        found = self._many("unclaimed_rows", key, number)
        return found + self._many("reserved_rows", key, number - len(found))

    def limited_keys(self, after: str, number: int) -> list[str]:
        keys: list[str] = []
        while len(keys) < number and (key := self.scalar("next_limited_key", after)) is not None:
            keys.append(key)
            after = key
        return keys

    def may_move(self) -> bool:
        return True

    def set_pause(self, pause: Pause) -> None:
        at = (None,) * 4 if pause.at is None else _place(pause.at)
        self._known_pauses = None
        self.cursor.execute(SQL["set_pause"], (*pause.order, pause.phase.value, *at))

    def drop_pause(self, scope: Scope) -> None:
        self._known_pauses = None
        self.cursor.execute(SQL["drop_pause"], (scope.tenant_id, scope.collection))

    def backlog(self, *, functions: bool, tenant_id: str | None, cap: int) -> int:
        if functions:
            return int(self.scalar("backlog_functions", cap))
        if tenant_id is None:
            return int(self.scalar("backlog_indexing", cap))
        return int(self.scalar("backlog_indexing_of_tenant", tenant_id, cap))

    def keyed_backlog(self, key: str, cap: int) -> int:
        return int(self.scalar("keyed_backlog", key, cap))

    def head_turn(self, priority: int) -> int | None:
        turn, paused = self.cursor.execute(SQL["head_turn"], (priority,)).fetchone()
        self._known_pauses = None if paused else []
        head: int | None = turn
        return head

    def last_turn(self, tenant_id: str, priority: int) -> int | None:
        turn: int | None = self.scalar("last_turn", tenant_id, priority)
        return turn

    def lock_holder(self, lock_key: str) -> str | None:
        holder: str | None = self.scalar("lock_holder", lock_key)
        return holder

    def upcoming(self, item_type: str | None, now: datetime) -> Iterator[list[NextJob]]:
        run = self.cursor.execute
        due = run(SQL["upcoming_due"], (format_time(now), item_type, LARGEST_PAGE))
        yield [NextJob(*row) for row in due.fetchall()]
        for start, size in pages():
            found = run(SQL["upcoming"], (item_type, size, start)).fetchall()
            yield [NextJob(*row) for row in found]
            if len(found) < size:
                return

    def jobs_of(self, ids: Sequence[str]) -> list[Job]:
        """Read jobs in the order of the ids."""
        found = {job.queue_id: job for job in self._many("jobs_of", as_list(ids))}
        return [found[queue_id] for queue_id in ids if queue_id in found]

    def positions(self, ids: Sequence[str]) -> list[Position | None]:
        """Positions of pending rows, exact up to ``POSITION_CAP``; None for other rows."""
        places = _Places(self)
        return [places.position(queue_id) if storable([queue_id]) else None for queue_id in ids]

    def first_parked(self, lock_keys: Collection[str]) -> list[Job]:
        free = [key for key in lock_keys if self.scalar("lock_holder", key) is None]
        parked = [self._one("first_parked", key) for key in free]
        return [job for job in parked if job is not None and not self._is_behind_front(job)]

    def parked_rows(self, scope: Scope, limit: int) -> list[Job]:
        return self._many("parked_rows", scope.tenant_id, scope.collection, limit)

    def _is_behind_front(self, parked: Job) -> bool:
        """Check whether a claimable row of the same lock with a turn below zero comes first."""
        place = (
            parked.lock_key,
            parked.priority,
            parked.turn,
            format_time(parked.created_at),
            parked.queue_id,
        )
        return self.scalar("in_front", *place) is not None

    def idle_locks(self, limit: int) -> list[str]:
        return [key for (key,) in self.cursor.execute(SQL["idle_locks"], (limit,)).fetchall()]

    def children(self, parent: Job, statuses: Collection[Status], limit: int) -> list[Job]:
        return self._many("children", parent.queue_id, parent.run, as_list(sorted(statuses)), limit)

    def has_child(self, parent: Job, key: str) -> bool:
        return self.scalar("has_child", parent.queue_id, parent.run, key) is not None

    def child_count(self, parent: Job) -> ChildCount:
        row = self.cursor.execute(SQL["child_count"], (parent.queue_id, parent.run)).fetchone()
        return ChildCount(*row)

    def doubtful_parents(self, limit: int) -> list[Job]:
        return self._many("doubtful_parents", limit)

    def paused_rows(self, limit: int, after: ClaimPosition | None) -> list[Job]:
        return [self._job(row) for row in self._after("paused", limit, after)]

    def claimable_rows(self, limit: int, after: ClaimPosition | None) -> list[RowPosition]:
        found = self._after("claimable", limit, after)
        return [
            RowPosition(queue_id, tenant_id, collection, priority, turn, read_time(created))
            for queue_id, tenant_id, collection, priority, turn, created in found
        ]

    def _after(self, which: str, limit: int, after: ClaimPosition | None) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        if after is not None:
            found = self.cursor.execute(SQL[f"{which}_from"], (*_place(after), limit)).fetchall()
        if len(found) < limit:
            below = (ABOVE_ALL if after is None else after.priority, limit - len(found))
            found += self.cursor.execute(SQL[f"{which}_below"], below).fetchall()
        return found

    def ended_trees(
        self, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int
    ) -> list[Job]:
        ends = (Status.DONE, Status.FAILED, Status.CANCELLED)
        # The empty text sorts before every time: nothing ended before it.
        before = [format_time(ended_before[end]) if end in ended_before else "" for end in ends]
        return self._many("ended_trees", *before, item_type, limit)

    def tree(self, root_id: str, limit: int) -> list[str]:
        found = self.cursor.execute(SQL["descendants"], (root_id, limit)).fetchall()
        ids = [queue_id for (queue_id,) in found]
        return ids if len(ids) == limit else [*ids, root_id]

    def delete(self, ids: Sequence[str]) -> None:
        rows = [(queue_id,) for queue_id in ids]
        self.cursor.executemany(SQL["delete"], rows)
        self.cursor.executemany(SQL["delete_payload"], rows)
        self.cursor.executemany(SQL["drop_dependencies"], rows)


def as_list(values: Collection[str] | Collection[int]) -> str:
    return msgspec.json.encode(list(values)).decode()


def _as_new(job: Job) -> list[Any]:
    """Encode the columns of a new row; the others start with their defaults."""
    values = list(_inserted(job))
    values[_CREATED_IN] = values[_UPDATED_IN] = format_time(job.created_at)
    values[_DEDUPE_IN] = _ENCODED[job.dedupe]
    if job.held is not None:
        values[_HELD_IN] = job.held.value
        values[_RUN_IN] = None if job.run_at is None else format_time(job.run_at)
    if len(job.payload_json) > SPILL_OVER:
        values[_PAYLOAD_IN] = SPILLED
    return values


def encoded(job: Job) -> tuple[Any, ...]:
    """Encode a job in column order."""
    values = list(msgspec.structs.astuple(job))
    created, text = job.created_at, format_time(job.created_at)
    for at in _TIME_AT:
        moment = values[at]
        if moment is not None:
            values[at] = text if moment is created else format_time(moment)
    values[_STATUS_AT] = job.status.value
    if job.held is not None:
        values[_HELD_AT] = job.held.value
    dedupe_at, lock_at, cancel_at, awaited_at = _FLAG_AT
    values[dedupe_at] = _ENCODED[job.dedupe]
    values[cancel_at] = _ENCODED[job.cancel_requested]
    values[awaited_at] = _ENCODED[job.awaited]
    # The name of the lock, so that a unique index refuses a second holder.
    values[lock_at] = job.lock_key if job.lock_held else None
    if len(job.payload_json) > SPILL_OVER:
        values[_PAYLOAD_AT] = SPILLED
    return tuple(values)


def _decoded(row: tuple[Any, ...], payload: Any) -> Job:
    """Decode a job. ``payload`` reads a long payload from the other table."""
    values = list(row)
    for at in _TIME_AT:
        text = values[at]
        if text is not None:
            values[at] = read_time(text)
    values[_STATUS_AT] = _STATUSES[values[_STATUS_AT]]
    held = values[_HELD_AT]
    values[_HELD_AT] = None if held is None else _HELD[held]
    dedupe_at, lock_at, cancel_at, awaited_at = _FLAG_AT
    values[dedupe_at] = values[dedupe_at] == 1
    values[lock_at] = values[lock_at] is not None
    values[cancel_at] = values[cancel_at] == 1
    values[awaited_at] = values[awaited_at] == 1
    if values[_PAYLOAD_AT] == SPILLED:
        values[_PAYLOAD_AT] = payload(row[0])
    return Job(**dict(zip(JOB_COLUMNS, values, strict=True)))


_ADD_PLAIN, _HEAD_TURN, _LAST_TURN = SQL["add_plain"], SQL["head_turn"], SQL["last_turn"]
_INSERT_JOB, _INSERT_JOBS = SQL["insert_job"], SQL["insert_jobs"]


class Refused(Exception):
    """The general path has to add the jobs; the transaction must be undone."""


def are_plain(new: Sequence[NewJob]) -> bool:
    """Check whether each job is claimable at once, with the payload in the row, and none meets another.

    The ids of several jobs must be in order, as the jobs share their time.
    """
    for each in new:
        # As NewJob.plain, without a call for each job.
        if each.run_at or each.after or each.limit_key or each.backlog_key or each.result_ttl_s:
            return False
        if len(each.payload_json) > SPILL_OVER:
            return False
    if len(new) == 1:
        return True
    ids = [each.queue_id for each in new]
    if any(map(str.__ge__, ids, ids[1:])):
        return False
    keys = [(each.tenant_id, each.branch, each.idempotency_key) for each in new if each.dedupe]
    return len(set(keys)) == len(keys)


def insert_plain(connection: sqlite3.Connection, new: Sequence[NewJob], now: datetime) -> None:
    """Insert plain jobs as the rules would, with few objects and statements.

    Raises ``Refused`` if a pause or a live duplicate is in the way. A taken id fails the statement.
    """
    at = format_new_time(now)
    if len(new) == 1:
        _insert_one(connection, new[0], at)
        return
    turns: dict[tuple[str, int], int] = {}
    rows = []
    for each in new:
        flow = (each.tenant_id, each.priority)
        last = turns.get(flow)
        # The rows of a flow are behind each other, so only the first asks for the head of the queue.
        turn = turns[flow] = _first_turn(connection, flow) if last is None else last + 1
        rows.append(plain_row(each, at, turn))
    whole = len(rows) - len(rows) % ROWS_AT_ONCE
    inserted = 0
    for start in range(0, whole, ROWS_AT_ONCE):
        values = list(chain.from_iterable(rows[start : start + ROWS_AT_ONCE]))
        inserted += connection.execute(_INSERT_JOBS, values).rowcount
    if whole < len(rows):
        inserted += connection.executemany(_INSERT_JOB, rows[whole:]).rowcount
    if inserted != len(rows):
        raise Refused


def _insert_one(connection: sqlite3.Connection, new: NewJob, at: str) -> None:
    values = (
        *(new.queue_id, new.item_type, new.op, new.tenant_id, new.collection, new.branch, new.priority),
        *(at, new.idempotency_key, _ENCODED[new.dedupe], new.max_retries, new.timeout_s),
        *(new.submitted_by, new.lock_key, new.payload_json, new.metadata),
    )
    try:
        inserted = connection.execute(_ADD_PLAIN, values).rowcount
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_NOTNULL:
            raise
        raise Refused from error
    if inserted != 1:
        raise Refused


def _first_turn(connection: sqlite3.Connection, flow: tuple[str, int]) -> int:
    head, paused = connection.execute(_HEAD_TURN, flow[1:]).fetchone()
    if paused:
        raise Refused
    last = connection.execute(_LAST_TURN, flow).fetchone()
    return transitions.next_turn(head, last[0] if last else None)


def plain_row(new: NewJob, at: str, turn: int) -> tuple[Any, ...]:
    """The values of ``INSERTED_COLUMNS``."""
    return (
        *(new.queue_id, new.item_type, new.op, new.tenant_id, new.collection, new.branch, new.priority),
        *(at, at, new.idempotency_key, _ENCODED[new.dedupe], new.max_retries, new.timeout_s),
        *(new.submitted_by, turn, None, None, new.lock_key, None, None, new.queue_id),
        *(new.payload_json, new.metadata),
    )


def _pause(
    tenant_id: str, collection: str, phase: str, priority: int | None, turn: int, created: str, queue_id: str
) -> Pause:
    at = None if priority is None else ClaimPosition(priority, turn, read_time(created), queue_id)
    return Pause(Scope(tenant_id, collection), PauseState(phase), at)


def _place(place: ClaimPosition) -> tuple[int, int, str, str]:
    return place.priority, place.turn, format_time(place.created_at), place.queue_id


class _Places:
    """Numbers shared by the positions of several rows, counted up to the cap when first needed."""

    def __init__(self, rows: SqliteRows) -> None:
        self._rows = rows
        # One place tells of all rows behind it, at a third of the price of a count.
        self._last = rows.cursor.execute(SQL["claimable_place"], (POSITION_CAP - 1,)).fetchone()

    @cached_property
    def _jobs(self) -> int:
        return POSITION_CAP if self._last is not None else int(self._rows.scalar("pending", POSITION_CAP))

    @cached_property
    def _requests(self) -> int:
        if self._last is not None and self._rows.scalar("more_requests", POSITION_CAP - 1):
            return POSITION_CAP
        return self._rows.backlog(functions=False, tenant_id=None, cap=POSITION_CAP)

    def position(self, queue_id: str) -> Position | None:
        rows, cap, last = self._rows, POSITION_CAP, self._last
        found = rows.cursor.execute(SQL["pending_place"], (queue_id,)).fetchone()
        if found is None:
            return None
        is_request, priority, *place = found
        if last is not None and (-priority, *place) > (-last[0], *last[1:]):
            ahead = cap
        else:
            ahead = min(rows.scalar("jobs_ahead", priority, cap, *place), cap)
        if not is_request:
            return Position(ahead, self._jobs, ahead)
        if not ahead or self._requests >= cap or self._requests == self._jobs:
            return Position(ahead, self._requests, ahead)
        return Position(rows.scalar("requests_ahead", cap, priority, *place), self._requests, ahead)


FEW = 200
"""Pending jobs up to which every addition counts them."""

RECOUNT_S = 1.0
"""Time for which a count is used. Rows added since are always seen, by any process; jobs that returned to the
queue, by a retry for example, are seen at the next count."""


class _Counted(msgspec.Struct, frozen=True):
    """A count: the last row number at the time, and the time until which the count is used."""

    pending: int
    last_row: int
    until: float

    def bound(self, last_row: int) -> int:
        """The largest possible number of pending jobs: the count and all later rows."""
        return self.pending + last_row - self.last_row


class BacklogBounds:
    """Upper bounds of the pending jobs for the limits of one queue. Used inside write transactions only.

    A count reads an entry of an index for each pending job: with 8,000 of them it costs more than the
    addition. So not every addition counts them.
    """

    def __init__(self) -> None:
        self._counted: dict[tuple[int, bool, str | None], _Counted] = {}

    def have_room(self, rows: SqliteRows, new: Sequence[NewJob], limits: QueueLimits) -> bool:
        """Tell whether new rows without a backlog key surely keep the limits."""
        if limits.functions is None and all(item.item_type == "function" for item in new):
            # The usual call of a function: no limit is about it, so nothing is counted.
            return True
        left = self.binding(rows, new, limits)
        return left.indexing is None and left.per_tenant is None and left.functions is None

    def binding(self, rows: SqliteRows, new: Sequence[NewJob], limits: QueueLimits) -> QueueLimits:
        """The limits, without limits certainly kept by the new rows; the rules check the others."""
        if limits == NO_LIMITS:
            return limits
        tenants = [item.tenant_id for item in new if item.item_type != "function"]
        number, functions = len(tenants), len(new) - len(tenants)
        fits = partial(self._fits, rows, rows.scalar("last_row") or 0)
        kept = {
            "indexing": fits(number, limits.indexing),
            "per_tenant": all(fits(number, limits.per_tenant, of) for of in set(tenants)),
            "functions": fits(functions, limits.functions, functions=True),
        }
        return msgspec.structs.replace(limits, **{name: None for name, kept in kept.items() if kept})

    def _fits(
        self,
        rows: SqliteRows,
        last_row: int,
        number: int,
        limit: int | None,
        tenant_id: str | None = None,
        *,
        functions: bool = False,
    ) -> bool:
        """Tell whether more rows surely fit. False: perhaps not."""
        if limit is None or not number:
            return True
        kind, now = (limit, functions, tenant_id), clock.elapsed_s()
        known = self._counted.get(kind)
        if known is None or now >= known.until or _is_used_up(known, last_row, limit - number):
            pending = rows.backlog(functions=functions, tenant_id=tenant_id, cap=limit + 1)
            known = _Counted(pending, last_row, now + RECOUNT_S)
            if pending > FEW:
                self._counted[kind] = known
            else:
                self._counted.pop(kind, None)
        return known.bound(last_row) + number <= limit


def _is_used_up(known: _Counted, last_row: int, room: int) -> bool:
    """Tell whether only a new count can decide. A count already above the limit is not repeated."""
    return last_row < known.last_row or known.pending <= room < known.bound(last_row)
