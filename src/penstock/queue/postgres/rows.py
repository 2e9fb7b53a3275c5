"""Rows of a PostgreSQL queue inside one transaction, as the rules use them.

Rows are read and locked once, and changes are kept here until a statement has to see them: a batch of
settlements is one SELECT and one UPDATE for any number of rows. Several processes do the same at once, so
every row is locked before a decision, and a transaction that met another commit runs again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from penstock.database.postgres_connections import Connection
from penstock.dependencies import dependencies_of
from penstock.errors import DuplicateId
from penstock.job import Beat, Changes, Held, Job, NewJob, RenewResult, Settlement, Status
from penstock.limits import gated, touches
from penstock.queue.postgres.limit_rows import LimitRows
from penstock.queue.postgres.pause_rows import SQL, Cursor
from penstock.queue.postgres.values import Ended, changed, decoded, inserted, numbers, texts, times
from penstock.queue.rules.addition import FlowTurns
from penstock.queue.rules.next_jobs import LARGEST_PAGE, NextJob, pages
from penstock.queue.rules.rows import ChildCount, Finished, storable
from penstock.queue.sql.statements import JOB_COLUMNS
from penstock.results import begins_to_expire, kept_until

Key: TypeAlias = tuple[str, str, str]
INSERTED_AT_ONCE = 500
_IN_CLAIM_INDEX = frozenset({"status", "held", "turn", "priority"})


class PostgresRows(LimitRows):
    """Rows of one transaction."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.news = False
        """True if rows became claimable, so that waiting workers are notified."""
        self.to_wake: set[str] = set()
        """Locks to check once more after the commit."""
        self.limit_keys = set()
        self.limited_locks = set()
        self._new: dict[str, Job] = {}
        self._whole: list[Job] = []
        self._changed: dict[str, Job] = {}
        self._dependencies: dict[str, Job] = {}
        """Rows that began or ended to be held for others."""
        self._expiring: list[Job] = []
        """Rows whose results are to be removed later."""
        self._live: dict[Key, str | None] = {}
        self._siblings: dict[tuple[str, int], set[str]] = {}
        self._turns = FlowTurns()
        self._finished: Ended | None = None

    def flush(self) -> None:
        """Write kept changes, so the next statement sees them."""
        if self._new:
            # A key or id taken since the check fails the whole transaction; the next attempt finds it.
            new, self._new = list(self._new.values()), {}
            name, values = inserted(new)
            self.execute(SQL[name], values)
        if self._whole:
            self.execute(SQL["insert_row"], changed(self._whole, JOB_COLUMNS))
            self._whole = []
        if self._changed:
            jobs, self._changed = [self._changed[key] for key in sorted(self._changed)], {}
            self.execute(SQL["update"], changed(jobs))
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

    def _send_live(self, keys: Collection[Key]) -> Cursor:
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
        if len(self._new) == INSERTED_AT_ONCE:
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

    def read_finished(self, sent: Cursor) -> Ended:
        """Read the ended claims."""
        ((woken, *columns),) = sent.fetchall()
        self._finished = Ended(*(column or [] for column in columns))
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


def _flow(item: NewJob) -> tuple[str, int]:
    return item.tenant_id, item.priority


def _key(item: NewJob | Job) -> Key:
    return item.tenant_id, item.branch, item.idempotency_key
