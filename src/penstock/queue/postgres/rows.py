"""Rows of a PostgreSQL queue inside one transaction, as the rules use them.

Rows are read and locked once, and changes are kept here until a statement has to see them: a batch of
settlements is one SELECT and one UPDATE for any number of rows. Several processes do the same at once, so
every row is locked before a decision, and a transaction that met another commit runs again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
import psycopg
from psycopg import DataError, pq
from psycopg.rows import tuple_row

from penstock.database.postgres import (
    RETRYABLE_ERRORS,
    Connection,
    PostgresConnections,
    one_line,
    translate_error,
)
from penstock.errors import DuplicateId, StoreUnavailable
from penstock.queue.job import (
    Beat,
    Changes,
    Held,
    Job,
    NewJob,
    RenewResult,
    Scope,
    Settlement,
    Status,
    begins_to_expire,
    kept_until,
)
from penstock.queue.limits import Limit, decode_limit, encode_limit, gated, touches
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
from penstock.queue.sql.statements import (
    CHANGING_COLUMNS,
    COLUMN_TYPES,
    INSERTED_COLUMNS,
    JOB_COLUMNS,
    OWN_COLUMNS,
    load,
)
from penstock.queue.transitions import dependencies_of

_STATUS_AT = JOB_COLUMNS.index("status")
_HELD_AT = JOB_COLUMNS.index("held")
_LOCK_AT = JOB_COLUMNS.index("lock_held")
_STATUSES = {status.value: status for status in Status}
_HELD = {held.value: held for held in Held}


SQL = load("postgres")

PLANS = {"enable_bitmapscan": "off"}
"""Bitmap scans collect all matching rows before a LIMIT applies."""

Found: TypeAlias = list[tuple[Any, ...]]
Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]
_Key: TypeAlias = tuple[str, str, str]
_INSERTED_AT_ONCE = 500
_IN_CLAIM_INDEX = frozenset({"status", "held", "turn", "priority"})


class PostgresRows:
    """Rows of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.joined = False
        """True if the transaction belongs to the caller."""
        self.news = False
        """True if rows became claimable, so that waiting workers are notified."""
        self.to_wake: set[str] = set()
        """Locks to check once more after the commit."""
        self.limit_keys: set[str] = set()
        self.limited_locks: set[str] = set()
        self._known: dict[str, Job | None] = {}
        self._pauses: list[Pause] | None = None
        self._pauses_sent: Cursor | None = None
        self._new: dict[str, Job] = {}
        self._whole: list[Job] = []
        self._changed: dict[str, Job] = {}
        self._dependencies: dict[str, Job] = {}
        """Rows that began or ended to be held for others."""
        self._expiring: list[Job] = []
        """Rows whose results are to be removed later."""
        self._live: dict[_Key, str | None] = {}
        self._siblings: dict[tuple[str, int], set[str]] = {}
        self._turns = _FlowTurns()
        self._finished: _Ended | None = None

    # Statements. In a pipeline, ``send`` does not wait for the result.

    def send(self, name: str, **values: object) -> Cursor:
        self.flush()
        return self.execute(SQL[name], values)

    def execute(self, statement: str, values: Mapping[str, object] | Sequence[object]) -> Cursor:
        # A plain cursor: the connection of a caller may have another row factory.
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        return cursor.execute(statement.encode(), values, binary=True)

    def fetch(self, name: str, **values: object) -> Found:
        return self.send(name, **values).fetchall()

    def scalar(self, name: str, **values: object) -> Any:
        found = self.fetch(name, **values)
        return found[0][0] if found else None

    def _remember(self, found: Found) -> list[Job]:
        jobs = [decoded(row) for row in found]
        self._known.update({job.queue_id: job for job in jobs})
        return jobs

    def flush(self) -> None:
        """Write kept changes, so the next statement sees them."""
        if self._new:
            # A key or id taken since the check fails the whole transaction; the next attempt finds it.
            new, self._new = list(self._new.values()), {}
            name, values = inserted(new)
            self.execute(SQL[name], values)
        if self._whole:
            self.execute(SQL["insert_row"], _changed(self._whole, JOB_COLUMNS))
            self._whole = []
        if self._changed:
            jobs, self._changed = [self._changed[key] for key in sorted(self._changed)], {}
            self.execute(SQL["update"], _changed(jobs))
        if self._dependencies:
            self._flush_dependencies()
        if self._expiring:
            jobs, self._expiring = self._expiring, []
            untils = times(map(kept_until, jobs))
            self.execute(
                SQL["add_due_results"], {"times": untils, "ids": texts(job.queue_id for job in jobs)}
            )

    def _flush_dependencies(self) -> None:
        jobs, self._dependencies = list(self._dependencies.values()), {}
        free = [job.queue_id for job in jobs if job.held is not Held.AFTER]
        pairs = [
            (queue_id, job.queue_id)
            for job in jobs
            if job.held is Held.AFTER
            for queue_id in dependencies_of(job).after
        ]
        if free:
            self.execute(SQL["drop_dependencies"], {"ids": texts(free)})
        if pairs:
            after_ids, ids = zip(*pairs, strict=True)
            self.execute(SQL["add_dependencies"], {"after_ids": texts(after_ids), "ids": texts(ids)})

    def get(self, queue_id: str) -> Job | None:
        if queue_id not in self._known:
            self.lock_rows([queue_id])
        return self._known[queue_id]

    def peek(self, queue_id: str) -> Job | None:
        if queue_id in self._known:
            return self._known[queue_id]
        found = self.fetch("get", queue_id=queue_id)
        return decoded(found[0]) if found else None

    def lock_rows(self, ids: Iterable[str]) -> None:
        missing = {queue_id for queue_id in ids if queue_id not in self._known}
        if missing:
            self._known.update(dict.fromkeys(missing))
            self._remember(self.fetch("lock_rows", ids=texts(each for each in missing if storable([each]))))

    def live(self, tenant_id: str, branch: str, key: str) -> Job | None:
        own = (tenant_id, branch, key)
        if own not in self._live:
            self._read_live(self._send_live([own]))
        queue_id = self._live[own]
        return None if queue_id is None else self.get(queue_id)

    def _send_live(self, keys: Collection[_Key]) -> Cursor:
        tenants, branches, own = zip(*keys, strict=True)
        self._live.update(dict.fromkeys(keys))
        return self.send("live", tenants=texts(tenants), branches=texts(branches), keys=texts(own))

    def _read_live(self, sent: Cursor) -> None:
        for job in self._remember(sent.fetchall()):
            self._live[job.tenant_id, job.branch, job.idempotency_key] = job.queue_id

    def refuse_taken(self, new: Sequence[NewJob], parent: Job | None = None) -> None:
        """Read all rows which new rows can meet at once: pauses, ids, live keys or siblings, turns."""
        if not new:
            return
        if self._pauses is None:
            self._pauses_sent = self._send_pauses()
        live = {_key(item) for item in new if item.dedupe} if parent is None else set()
        sent = self._send_live(sorted(live)) if live else None
        keys = [item.idempotency_key for item in new]
        siblings = self._read_siblings(parent, keys) if parent is not None else set()
        taken = self._read_flows([item.queue_id for item in new], {_flow(item) for item in new})
        if sent is not None:
            self._read_live(sent)
        self._refuse(new, parent, siblings, taken)

    def _refuse(
        self, new: Sequence[NewJob], parent: Job | None, siblings: Collection[str], taken: set[str]
    ) -> None:
        keys = set(siblings)
        for item in new:
            if parent is not None and item.idempotency_key in keys:
                continue
            if item.queue_id in taken:
                raise DuplicateId(f"a job with id {item.queue_id} exists already")
            taken.add(item.queue_id)
            keys.add(item.idempotency_key)
        self._known.update({item.queue_id: None for item in new if item.queue_id not in self._known})

    def _read_siblings(self, parent: Job, keys: list[str]) -> set[str]:
        found = self.fetch(
            "known_children", parent_id=parent.queue_id, parent_run=parent.run, keys=texts(keys)
        )
        siblings = self._siblings.setdefault((parent.queue_id, parent.run), set())
        siblings |= {key for (key,) in found}
        return siblings

    def _read_flows(self, ids: Collection[str], flows: Collection[tuple[str, int]]) -> set[str]:
        """Read the turns of flows. Returns the ids which exist."""
        tenants, priorities = zip(*flows, strict=True)
        taken: set[str] = set()
        for tenant_id, priority, head, last, found in self.fetch(
            "flow_turns", ids=texts(ids), tenants=texts(tenants), priorities=numbers(priorities)
        ):
            self._turns.heads[priority] = head
            self._turns.lasts[tenant_id, priority] = last
            taken.update(found)
        return taken

    def try_insert(self, job: Job) -> bool:
        if job.parent_id is not None:
            siblings = self._siblings[job.parent_id, job.parent_run or 0]
            if job.idempotency_key in siblings:
                return False
            siblings.add(job.idempotency_key)
        elif job.dedupe:
            key = _key(job)
            if self.live(*key) is not None:
                return False
            self._live[key] = job.queue_id
        if self._known.get(job.queue_id) is not None:
            raise DuplicateId(f"a job with id {job.queue_id} exists already")
        self._new[job.queue_id] = self._known[job.queue_id] = job
        self._turns.record(None, job)
        self.news = self.news or job.held is None
        if len(self._new) == _INSERTED_AT_ONCE:
            # The server writes them while the next are prepared.
            self.flush()
        return True

    def insert(self, job: Job) -> None:
        self._whole.append(job)
        self._known[job.queue_id] = job
        if job.parent_id is None and job.dedupe and not job.ended:
            self._live[_key(job)] = job.queue_id
        if job.parent_id is not None:
            self._siblings.setdefault((job.parent_id, job.parent_run or 0), set()).add(job.idempotency_key)
        self._turns.record(None, job)
        self.news = self.news or (job.status is Status.PENDING and job.held is None)
        if job.held is Held.AFTER:
            self._dependencies[job.queue_id] = job
        if job.limit_key is not None and job.held is Held.LIMIT:
            self.limit_keys.add(job.limit_key)
        if begins_to_expire(None, job):
            self._expiring.append(job)

    def change(self, job: Job, changes: Changes) -> Job:
        if "awaited" in changes and job.queue_id in self._new:
            # Inserts of new rows do not have this column.
            self.flush()
        if job.limit_key is not None:
            changes = gated(job, changes)
        after = msgspec.structs.replace(job, **changes)
        if job.limit_key is not None and touches(job, after):
            self.limit_keys.add(job.limit_key)
        if after.held is Held.LOCK and job.held is not Held.LOCK and job.lock_key is not None:
            # Its holder may end before this transaction commits, and would not see the row.
            self.to_wake.add(job.lock_key)
        self._known[job.queue_id] = after
        kept = self._new if job.queue_id in self._new else self._changed
        kept[job.queue_id] = after
        if changes.keys() & _IN_CLAIM_INDEX:
            self._turns.record(job, after)
            self.news = self.news or (after.status is Status.PENDING and after.held is None)
        if after.ended is not job.ended:
            self._live.pop(_key(job), None)
        if after.held is not job.held and Held.AFTER in (after.held, job.held):
            self._dependencies[job.queue_id] = after
        if after.result_ttl_s is not None and begins_to_expire(job, after):
            self._expiring.append(after)
        return after

    def due_results(self, now: datetime, limit: int) -> list[str]:
        return [queue_id for (queue_id,) in self.fetch("due_results", now=now, limit=limit)]

    def drop_due_results(self, ids: Sequence[str], now: datetime) -> None:
        self.send("drop_due_results", ids=texts(ids), now=now)

    def dependents(self, queue_id: str, after: str, limit: int) -> list[Job]:
        ids = [each for (each,) in self.fetch("dependents", queue_id=queue_id, after=after, limit=limit)]
        self.lock_rows(ids)
        # One may have been released while its lock was waited for.
        return [job for job in map(self._known.get, ids) if job is not None and job.held is Held.AFTER]

    def statuses(self, ids: Sequence[str]) -> dict[str, Status]:
        found = self.fetch("statuses", ids=texts(ids)) if ids else []
        return {queue_id: Status(status) for queue_id, status in found}

    def awaited_rows(self, after: str, limit: int) -> list[str]:
        return [queue_id for (queue_id,) in self.fetch("awaited_rows", after=after, limit=limit)]

    def finish(self, settlements: Sequence[Settlement], now: datetime) -> Finished:
        ended = self._finished or self.read_finished(self.send_finish("finish", settlements, now))
        # Every job is in one settlement only.
        places = {queue_id: place for place, queue_id in enumerate(ended.ids)}
        at = [places.get(each.queue_id) for each in settlements]
        parents = [
            (parent, ended.parent_runs[place], each.result_json)
            for each, place in zip(settlements, at, strict=True)
            if place is not None and (parent := ended.parents[place]) is not None
        ]
        return Finished([place is not None for place in at], ended.freed, parents)

    def send_finish(self, name: str, settlements: Sequence[Settlement], now: datetime) -> Cursor:
        results = [each.result_json for each in settlements]
        return self.send(
            name,
            now=now,
            ids=texts(each.queue_id for each in settlements),
            numbers=numbers(each.claim_number for each in settlements),
            results=texts(results if any(results) else ()),
        )

    def read_finished(self, sent: Cursor) -> _Ended:
        """Read the ended claims."""
        ((woken, *columns),) = sent.fetchall()
        self._finished = _Ended(*(column or [] for column in columns))
        self.news = self.news or bool(woken)
        if self._known:
            for queue_id in self._finished.ids:
                self._known.pop(queue_id, None)
        return self._finished

    def renew(self, beats: Sequence[Beat], now: datetime) -> list[RenewResult]:
        found = self.fetch(
            "renew",
            now=now,
            ids=texts(beat.queue_id for beat in beats),
            numbers=numbers(beat.claim_number for beat in beats),
            leases=times(None if beat.lease is None else now + beat.lease for beat in beats),
            progress=texts(beat.progress_json for beat in beats),
        )
        held = {(queue_id, number): requested for queue_id, number, requested in found}
        return [
            RenewResult(claim in held, held.get(claim, False))
            for claim in ((beat.queue_id, beat.claim_number) for beat in beats)
        ]

    def backlog(self, *, functions: bool, tenant_id: str | None, cap: int) -> int:
        if functions:
            return int(self.scalar("backlog_functions", cap=cap))
        if tenant_id is None:
            return int(self.scalar("backlog_indexing", cap=cap))
        return int(self.scalar("backlog_indexing_of_tenant", tenant_id=tenant_id, cap=cap))

    def keyed_backlog(self, key: str, cap: int) -> int:
        return int(self.scalar("keyed_backlog", key=key, cap=cap))

    def head_turn(self, priority: int) -> int | None:
        heads = self._turns.heads
        if priority not in heads:
            # No tenant: the head turn is shared by all tenants.
            self._read_flows((), [("", priority)])
        return heads[priority]

    def last_turn(self, tenant_id: str, priority: int) -> int | None:
        flow, lasts = (tenant_id, priority), self._turns.lasts
        if flow not in lasts:
            self._read_flows((), [flow])
        return lasts[flow]

    def lock_holder(self, lock_key: str) -> str | None:
        holder: str | None = self.scalar("lock_holder", lock_key=lock_key)
        return holder

    def upcoming(self, item_type: str | None, now: datetime) -> Iterator[list[NextJob]]:
        due = self.fetch("upcoming_due", now=now, item_type=item_type, limit=LARGEST_PAGE)
        yield [NextJob(*row) for row in due]
        for start, size in pages():
            found = self.fetch("upcoming", item_type=item_type, limit=size, start=start)
            yield [NextJob(*row) for row in found]
            if len(found) < size:
                return

    def jobs_of(self, ids: Sequence[str]) -> list[Job]:
        """Read jobs in the order of the ids."""
        found = {job.queue_id: job for job in map(decoded, self.fetch("jobs_of", ids=texts(ids)))}
        return [found[queue_id] for queue_id in ids if queue_id in found]

    def first_parked(self, lock_keys: Collection[str]) -> list[Job]:
        self.to_wake.update(lock_keys)
        if not lock_keys or not self.scalar("any_parked"):
            return []
        return self._remember(self.fetch("first_parked", keys=texts(lock_keys)))

    def idle_locks(self, limit: int) -> list[str]:
        return [key for (key,) in self.fetch("idle_locks", limit=limit)]

    def children(self, parent: Job, statuses: Collection[Status], limit: int) -> list[Job]:
        wanted = texts(status.value for status in statuses)
        place = {"parent_id": parent.queue_id, "parent_run": parent.run}
        return [decoded(row) for row in self.fetch("children", **place, statuses=wanted, limit=limit)]

    def has_child(self, parent: Job, key: str) -> bool:
        return key in self._siblings[parent.queue_id, parent.run]

    def child_count(self, parent: Job) -> ChildCount:
        return ChildCount(*self.fetch("child_count", parent_id=parent.queue_id, parent_run=parent.run)[0])

    def doubtful_parents(self, limit: int) -> list[Job]:
        ids = [queue_id for (queue_id,) in self.fetch("doubtful_parents", limit=limit)]
        self.lock_rows(ids)
        held = [self._known[queue_id] for queue_id in ids]
        # Another transaction may have repaired a row while this one waited for its lock.
        return [job for job in held if job is not None and job.waiting]

    def ended_trees(
        self, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int
    ) -> list[Job]:
        ends = {end.value: ended_before.get(end) for end in (Status.DONE, Status.FAILED, Status.CANCELLED)}
        return self._remember(self.fetch("ended_trees", **ends, item_type=item_type, limit=limit))

    def tree(self, root_id: str, limit: int) -> list[str]:
        found = self.fetch("descendants", root_id=root_id, limit=limit)
        if any(lives for _, lives in found):
            return []
        ids = [queue_id for queue_id, _ in found]
        return ids if len(ids) == limit else [*ids, root_id]

    def delete(self, ids: Sequence[str]) -> None:
        self.send("delete", ids=texts(ids))
        self.send("drop_dependencies", ids=texts(ids))

    # Pauses, and rows held for them.

    def pauses(self, *, to_change: bool = False) -> list[Pause]:
        if to_change:
            self.send("exclude_additions")
            return [as_pause(*row) for row in self.fetch("hold_pauses")]
        if self._pauses is None:
            sent, self._pauses_sent = self._pauses_sent or self._send_pauses(), None
            self._pauses = [as_pause(*row) for row in sent.fetchall()]
        return self._pauses

    def _send_pauses(self) -> Cursor:
        # The transaction of a caller may take long: a resume must not wait for it.
        return self.send("pauses" if self.joined else "keep_pauses")

    def may_move(self) -> bool:
        return bool(self.scalar("resume_alone"))

    def set_pause(self, pause: Pause) -> None:
        nowhere = {"priority": None, "turn": None, "created_at": None, "queue_id": None}
        place = nowhere if pause.at is None else _place(pause.at)
        scope = msgspec.structs.asdict(pause.scope)
        self.send("set_pause", **place, **scope, phase=pause.phase.value)

    def drop_pause(self, scope: Scope) -> None:
        self.send("drop_pause", tenant_id=scope.tenant_id, collection=scope.collection)

    def parked_rows(self, scope: Scope, limit: int) -> list[Job | None]:
        found = self.fetch("parked_rows", **msgspec.structs.asdict(scope), limit=limit)
        return [None if row[0] is None else self._remember([row])[0] for row in found]

    def paused_rows(self, limit: int, after: ClaimPosition | None) -> list[Job]:
        return self._remember(self._after("paused", limit, after))

    def claimable_rows(self, limit: int, after: ClaimPosition | None) -> list[RowPosition]:
        return [RowPosition(*row) for row in self._after("claimable", limit, after)]

    def _after(self, which: str, limit: int, after: ClaimPosition | None) -> Found:
        found = [] if after is None else self.fetch(f"{which}_from", **_place(after), limit=limit)
        if len(found) < limit:
            below = ABOVE_ALL if after is None else after.priority
            found += self.fetch(f"{which}_below", priority=below, limit=limit - len(found))
        return found

    # Limits, and rows with one.

    def seen_pauses(self) -> list[Pause]:
        return [as_pause(*row) for row in self.fetch("pauses")]

    def limit(self, key: str) -> Limit | None:
        body = self.scalar("limit_body", limit_key=key)
        return decode_limit(body) if body else None

    def all_limits(self) -> list[Limit]:
        return [decode_limit(body) for (body,) in self.fetch("all_limits")]

    def set_limit(self, limit: Limit) -> None:
        self.send("set_limit", limit_key=limit.key, body=encode_limit(limit).decode())

    def drop_limit(self, key: str) -> bool:
        return bool(self.fetch("drop_limit", limit_key=key))

    def slots(self, key: str, most: int, most_unclaimed: int, until: datetime) -> tuple[int, int]:
        values = {"limit_key": key, "most": most, "most_unclaimed": most_unclaimed, "until": until}
        ((started, reserved, unclaimed, ahead),) = self.fetch("slots", **values)
        return min(started + reserved, most), min(unclaimed + ahead, most_unclaimed)

    def limited_rows(self, key: str, number: int) -> list[Job]:
        return self._remember(self.fetch("limited_rows", limit_key=key, number=number))

    def unclaimed_rows(self, key: str, number: int) -> list[Job]:
        found = self.fetch("unclaimed_rows", limit_key=key, number=number)
        found += self.fetch("reserved_rows", limit_key=key, number=number - len(found))
        return self._remember(found)

    def limited_keys(self, after: str, number: int) -> list[str]:
        keys: list[str] = []
        while len(keys) < number and (key := self.scalar("next_limited_key", after=after)) is not None:
            keys.append(key)
            after = key
        return keys


def texts(values: Iterable[str | None]) -> str:
    """One array literal. A batch is sent as one for each column.

    Writing it costs a fraction of the driver's arrays, and the statement is the same for any batch size.
    """
    given = list(values)
    if not given or None in given:
        return "{" + ",".join(["NULL" if value is None else f'"{_escaped(value)}"' for value in given]) + "}"
    # All at once, joined by a character that no text in PostgreSQL has.
    joined = "\0".join(given)  # type: ignore[arg-type]  # None is excluded above
    if joined.count("\0") != len(given) - 1:
        raise DataError("PostgreSQL text cannot contain NUL (0x00) bytes")
    return '{"' + _escaped(joined).replace("\0", '","') + '"}'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def numbers(values: Iterable[int | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else str(int(value)) for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else value.isoformat() for value in values]) + "}"


def _flags(values: Iterable[bool]) -> str:
    return "{" + ",".join(["t" if value else "f" for value in values]) + "}"


_WRITERS: dict[str, Any] = {"integer": numbers, "bigint": numbers, "timestamptz": times, "boolean": _flags}


def _columns(jobs: Sequence[Job], names: Sequence[str]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {name: list(map(attrgetter(name), jobs)) for name in names}
    if "lock_held" in values:
        # The name of the lock, so that a unique index refuses a second holder.
        values["lock_held"] = [job.lock_key if job.lock_held else None for job in jobs]
    return values


def _array(name: str, values: Iterable[Any]) -> str:
    written: str = _WRITERS.get(COLUMN_TYPES.get(name, ""), texts)(values)
    return written


def _common(name: str, value: Any) -> str | None:
    """Encode one value like an array element, without quotes."""
    if value is None or name not in COLUMN_TYPES:
        return None if value is None else str(value)
    return _array(name, [value])[1:-1]


def inserted(jobs: Sequence[Job]) -> tuple[str, dict[str, str | None]]:
    """Return the name of the insert statement, and the values."""
    columns = _columns(jobs, INSERTED_COLUMNS)
    common = {
        name: values[0]
        for name, values in columns.items()
        if name not in OWN_COLUMNS and values.count(values[0]) == len(values)
    }
    alike = len(common) == len(columns) - len(OWN_COLUMNS)
    return "insert_alike" if alike else "insert_job", {
        name: _common(name, common[name]) if alike and name in common else _array(name, values)
        for name, values in columns.items()
    }


def _changed(jobs: Sequence[Job], names: Sequence[str] = ("queue_id", *CHANGING_COLUMNS)) -> dict[str, str]:
    return {name: _array(name, values) for name, values in _columns(jobs, names).items()}


def decoded(row: tuple[Any, ...]) -> Job:
    values = list(row)
    values[_STATUS_AT] = _STATUSES[values[_STATUS_AT]]
    held = values[_HELD_AT]
    values[_HELD_AT] = None if held is None else _HELD[held]
    values[_LOCK_AT] = values[_LOCK_AT] is not None
    return Job(**dict(zip(JOB_COLUMNS, values, strict=True)))


class _Ended(msgspec.Struct, frozen=True):
    """Columns of the jobs ended by the plain path."""

    ids: list[str]
    lock_keys: list[str | None]
    parents: list[str | None]
    parent_runs: list[int | None]

    @property
    def freed(self) -> set[str]:
        """Locks held by the jobs."""
        return {key for key in self.lock_keys if key is not None}


def as_pause(
    tenant_id: str,
    collection: str,
    phase: str,
    priority: int | None,
    turn: int,
    created_at: datetime,
    queue_id: str,
) -> Pause:
    at = None if priority is None else ClaimPosition(priority, turn, created_at, queue_id)
    return Pause(Scope(tenant_id, collection), PauseState(phase), at)


def _place(place: ClaimPosition) -> dict[str, object]:
    return {
        "priority": place.priority,
        "turn": place.turn,
        "created_at": place.created_at,
        "queue_id": place.queue_id,
    }


T = TypeVar("T")

_ATTEMPTS = 10
_WAKE_ATTEMPTS = 3
_LONGEST_PAUSE_S = 0.2
_CONFLICTS = (*RETRYABLE_ERRORS, psycopg.errors.UniqueViolation, psycopg.errors.ForeignKeyViolation)


class _PipelinedRows(Protocol):
    """Methods of rows for a transaction."""

    news: bool
    """True if the commit notifies waiting workers."""
    to_wake: set[str]

    def execute(self, statement: str, values: Mapping[str, object], /) -> Cursor: ...
    def flush(self) -> None: ...


R = TypeVar("R", bound=_PipelinedRows)


def transact(
    connections: PostgresConnections, channel: str, make: Callable[[Connection], R], work: Callable[[R], T]
) -> T:
    """Run ``work`` over new rows in one transaction, sent as a pipeline and repeated after a conflict."""
    for attempt in range(_ATTEMPTS):
        with connections.borrowed() as connection:
            transaction = _Transaction(connection, connections, channel)
            try:
                return transaction.run(make(connection), work)
            except _CONFLICTS as error:
                if attempt == _ATTEMPTS - 1:
                    raise _gave_up(error, connections.name) from error
            except psycopg.Error as error:
                # The session ended while idle, so nothing of this transaction can have happened.
                stale = connection.broken and not transaction.committing and attempt == 0
                if not stale:
                    in_doubt = transaction.committing and connection.broken
                    raise refusal(error, connections, in_doubt=in_doubt) from error
        # With a pause: at once, both would meet again.
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE_S, 0.002 * 2**attempt)))
    raise AssertionError("the last attempt returns or raises")


class _Transaction:
    def __init__(self, connection: Connection, connections: PostgresConnections, channel: str) -> None:
        self._connection = connection
        self._connections = connections
        self._channel = channel
        self.committing = False

    def run(self, rows: R, work: Callable[[R], T]) -> T:
        commit: Cursor | None = None
        checked: tuple[Cursor, Cursor | None] | None = None
        try:
            with _pipeline(self._connection):
                rows.execute("BEGIN", {})
                if self._connections.pooled:
                    rows.execute(self._connections.session_settings, {})
                result = work(rows)
                rows.flush()
                if rows.news:
                    rows.execute("SELECT pg_notify(%(channel)s, '')", {"channel": self._channel})
                self.committing = True
                commit = rows.execute("COMMIT", {})
                checked = self._check_parked(rows) if rows.to_wake else None
            if checked is not None:
                self._pass_on(rows, *checked)
        except psycopg.Error:
            if commit is None or commit.statusmessage != "COMMIT":
                self._roll_back()
                if not self._connection.broken:
                    # Statements after the error never ran, but the driver may count one of them as prepared:
                    # every later transaction would fail on it.
                    self._connection.close()
                raise
            # The transaction is committed. A lock not passed on now is passed on by the next reconcile.
            for _ in range(_WAKE_ATTEMPTS):
                with suppress(psycopg.Error):
                    self._wake_locked(rows, self._wake(rows))
                    break
        except BaseException:
            self._roll_back()
            raise
        return result

    def _check_parked(self, rows: _PipelinedRows) -> tuple[Cursor, Cursor | None]:
        """Check for parked rows. Usually there are none, and the check costs a third of a wake."""
        check = rows.execute(SQL["any_parked"], {})
        return check, self._wake(rows) if self._connections.parked else None

    def _pass_on(self, rows: _PipelinedRows, check: Cursor, wake: Cursor | None) -> None:
        ((self._connections.parked,),) = check.fetchall()
        if wake is None and self._connections.parked:
            wake = self._wake(rows)
        if wake is not None:
            self._wake_locked(rows, wake)

    def _wake(self, rows: _PipelinedRows) -> Cursor:
        keys = texts(sorted(rows.to_wake))
        return rows.execute(SQL["wake"], {"keys": keys, "channel": self._channel})

    def _wake_locked(self, rows: _PipelinedRows, wake: Cursor) -> None:
        """Wake rows locked by other transactions, each in a separate transaction."""
        for (key,) in wake.fetchall():
            rows.execute(SQL["wake_one"], {"key": key, "channel": self._channel})

    def _roll_back(self) -> None:
        if self._connection.info.transaction_status is not pq.TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                self._connection.execute(b"ROLLBACK")


def refusal(error: psycopg.Error, connections: PostgresConnections, *, in_doubt: bool) -> Exception:
    """Translate an error. ``in_doubt``: the result of the commit is unknown."""
    if in_doubt:
        return StoreUnavailable(
            f"{connections.name} went away before it answered a COMMIT ({one_line(error)}); "
            "it may have been done",
            remedy="Once the store is back, check whether it was done, or repeat it with the same key.",
        )
    return translate_error(error, connections.name)


@contextmanager
def _pipeline(connection: Connection) -> Iterator[None]:
    """Use the driver's pipeline without a log line for every raised error."""
    pipeline = connection.pipeline()
    pipeline.__enter__()
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):
            pipeline.__exit__(None, None, None)
        raise
    pipeline.__exit__(None, None, None)


def _gave_up(error: psycopg.Error, name: str) -> Exception:
    if isinstance(error, RETRYABLE_ERRORS):
        return translate_error(error, name)
    return StoreUnavailable(
        f"{name} stayed busy: {_ATTEMPTS} attempts met another writer ({one_line(error)})"
    )


def _flow(item: NewJob) -> tuple[str, int]:
    return item.tenant_id, item.priority


def _key(item: NewJob | Job) -> _Key:
    return item.tenant_id, item.branch, item.idempotency_key


class _FlowTurns:
    """Cached turns of flows in one transaction, updated as rows change. Unknown flows must be read.

    Reading them would be a round trip for each row.
    """

    def __init__(self) -> None:
        self.heads: dict[int, int | None] = {}
        self.lasts: dict[tuple[str, int], int | None] = {}

    def record(self, before: Job | None, after: Job) -> None:
        """Update the turns after a change of a row; ``before`` None: the row is new."""
        if before is not None:
            self._leave(before, after)
        if after.status is not Status.PENDING:
            return
        flow = (after.tenant_id, after.priority)
        if flow in self.lasts:
            last = self.lasts[flow]
            self.lasts[flow] = after.turn if last is None else max(last, after.turn)
        if _has_turn(after) and after.priority in self.heads:
            head = self.heads[after.priority]
            self.heads[after.priority] = after.turn if head is None else min(head, after.turn)

    def _leave(self, before: Job, after: Job) -> None:
        """Forget a turn which perhaps only the row before the change had."""
        if before.status is not Status.PENDING:
            return
        flow = (before.tenant_id, before.priority)
        stays = after.status is Status.PENDING and after.priority == before.priority
        if self.lasts.get(flow) == before.turn and not (stays and after.turn >= before.turn):
            self.lasts.pop(flow, None)
        ahead = stays and _has_turn(after) and after.turn <= before.turn
        if _has_turn(before) and self.heads.get(before.priority) == before.turn and not ahead:
            self.heads.pop(before.priority, None)


def _has_turn(job: Job) -> bool:
    """Check whether the turn counts for the head of the priority."""
    return job.status is Status.PENDING and job.held is None and job.turn >= 0
