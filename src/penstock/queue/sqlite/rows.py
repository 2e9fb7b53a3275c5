"""Rows of a SQLite queue inside one transaction, as the rules use them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock.clock import format_time, read_time
from penstock.database.sqlite_file import CURSOR
from penstock.dependencies import dependencies_of
from penstock.errors import DuplicateId
from penstock.job import (
    Beat,
    Changes,
    Held,
    Job,
    NewJob,
    RenewResult,
    Scope,
    Settlement,
    Status,
)
from penstock.limits import Limit, gated, touches
from penstock.queue.limit_rows import decode as decode_limit
from penstock.queue.limit_rows import encode as encode_limit
from penstock.queue.rules.next_jobs import LARGEST_PAGE, NextJob, pages
from penstock.queue.rules.pauses import ABOVE_ALL, ClaimPosition, Pause, PauseState, RowPosition
from penstock.queue.rules.rows import ChildCount, Finished, storable
from penstock.queue.sql.statements import CHANGING_COLUMNS, JOB_COLUMNS, load
from penstock.queue.sqlite import plain_ends
from penstock.queue.sqlite.values import SPILL_OVER, SPILLED, STATUSES, as_list, as_new, decoded, encoded
from penstock.results import begins_to_expire, kept_until

SQL = load("sqlite")


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
        return decoded(row, self.payload)

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
            inserted = self.cursor.execute(statement, as_new(job)).rowcount == 1
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
        return {queue_id: STATUSES[status] for queue_id, status in found}

    def awaited_rows(self, after: str, limit: int) -> list[str]:
        found = self.cursor.execute(SQL["awaited_rows"], (after, limit)).fetchall()
        return [queue_id for (queue_id,) in found]

    def finish(self, settlements: Sequence[Settlement], now: datetime) -> Finished:
        return plain_ends.finish(self.cursor, settlements, now)

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


def _pause(
    tenant_id: str, collection: str, phase: str, priority: int | None, turn: int, created: str, queue_id: str
) -> Pause:
    at = None if priority is None else ClaimPosition(priority, turn, read_time(created), queue_id)
    return Pause(Scope(tenant_id, collection), PauseState(phase), at)


def _place(place: ClaimPosition) -> tuple[int, int, str, str]:
    return place.priority, place.turn, format_time(place.created_at), place.queue_id
