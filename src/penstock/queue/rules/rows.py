"""Rows of an engine inside one transaction, as the rules use them.

``addition``, ``settlement``, ``cancellation``, ``requeue`` and ``pause_batches`` decide over this
interface, so each rule is written once. An engine supplies the rows, the transaction, and a fast path for
plain ends (``finish``), where one statement replaces three.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from penstock.errors import InvalidText
from penstock.job import RETURNED, SUSPECT, Changes, Held, Job, JobQuery, NewJob, Scope, Settlement, Status
from penstock.limits import Limit
from penstock.named_tuple import NamedTuple
from penstock.queue.rules.pauses import ClaimPosition, Pause, RowPosition


class ChildCount(NamedTuple):
    """Children of one run of a parent."""

    total: int
    open: int
    failed: int


class Finished(NamedTuple):
    """Result of ``finish``."""

    over: Sequence[bool]
    """One for each claim. False: take the general path."""
    freed: Collection[str] = ()
    """Locks that became free, for which rows may be parked."""
    parents: Sequence[tuple[str, int | None, str | None]] = ()
    """Parent, run and the child's result, once for each ended child."""


class Rows(Protocol):
    """Methods of rows for the rules."""

    def get(self, queue_id: str) -> Job | None:
        """Read and lock a row: no other transaction changes the row before this one ends."""

    def peek(self, queue_id: str) -> Job | None:
        """Read a row without a lock."""

    def lock_rows(self, ids: Collection[str]) -> None:
        """Lock rows at once and in one order, on engines with row locks. ``get`` follows."""

    def live(self, tenant_id: str, branch: str, key: str) -> Job | None:
        """Return the live top-level row with this key, if any."""

    def refuse_taken(self, new: Sequence[NewJob], parent: Job | None = None) -> None:
        """Raise ``DuplicateId`` before the first write, on engines without undo of ``try_insert``.

        Existing children of the parent's run are no duplicates: an expansion may be sent twice.
        """

    def try_insert(self, job: Job) -> bool:
        """Insert a row. False, and nothing written, if the key is live or known to the parent's run.

        Raises ``DuplicateId`` when the id is taken.
        """

    def insert(self, job: Job) -> None:
        """Insert a whole row in any status. The rules have checked id, key and lock."""

    def change(self, job: Job, changes: Changes) -> Job: ...

    def finish(self, settlements: Sequence[Settlement], now: datetime) -> Finished:
        """End plain claims as done: without follow-up or children. The caller counts their parents."""

    def backlog(self, *, functions: bool, tenant_id: str | None, cap: int) -> int:
        """Count pending top-level rows of functions, or of all other types, up to ``cap``."""

    def keyed_backlog(self, key: str, cap: int) -> int:
        """Count pending top-level rows with a backlog key, up to ``cap``."""

    def head_turn(self, priority: int) -> int | None:
        """Return the smallest turn >= 0 of the claimable rows."""

    def last_turn(self, tenant_id: str, priority: int) -> int | None:
        """Return the largest turn of a tenant's pending rows of this priority, held rows included."""

    def lock_holder(self, lock_key: str) -> str | None:
        """Return the id of the lock's holder."""

    def first_parked(self, lock_keys: Collection[str]) -> Sequence[Job]:
        """List the first row parked for each free lock.

        Not while an earlier row of the lock is claimable and has a turn below zero: both would have the
        same turn, and their ids might decide. An engine with concurrent writers also omits the row while an
        earlier row of its tenant and priority is claimable.
        """

    def parked_rows(self, scope: Scope, limit: int) -> Sequence[Job | None]:
        """Parked rows of a scope, by lock, then in claim order; None for a row locked by others."""

    def children(self, parent: Job, statuses: Collection[Status], limit: int) -> list[Job]:
        """List children of the current run in id order; running ones only without a cancel request."""

    def has_child(self, parent: Job, key: str) -> bool:
        """Check whether the current run of a parent has a child with this key."""

    def child_count(self, parent: Job) -> ChildCount: ...

    def dependents(self, queue_id: str, after: str, limit: int) -> Sequence[Job]:
        """List and lock rows that are held for this one, with larger ids than ``after``, in id order."""

    def statuses(self, ids: Sequence[str]) -> Mapping[str, Status]:
        """Read the statuses of the existing rows among these."""

    def awaited_rows(self, after: str, limit: int) -> Sequence[str]:
        """List rows, existing or not, for which others are held, with larger ids than ``after``."""

    limit_keys: set[str]
    """Keys of limits for which rows gave up a slot, or began to wait, in this transaction."""

    limited_locks: set[str]
    """Locks whose next row now waits for its limit instead of taking the lock, in this transaction."""

    def limit(self, key: str) -> Limit | None:
        """Read and lock the limit of a key."""

    def set_limit(self, limit: Limit) -> None: ...

    def drop_limit(self, key: str) -> bool:
        """Remove the limit of a key; False for a key without one."""

    def slots(self, key: str, most: int, most_unclaimed: int, until: datetime) -> tuple[int, int]:
        """Count rows of a key with a slot up to ``most``, and the unclaimed ones up to ``most_unclaimed``.

        Only unclaimed rows with a start up to ``until``: others are from before the clock was set back.
        """

    def limited_rows(self, key: str, number: int) -> Sequence[Job]:
        """List and lock the first rows held for a limit, in claim order; not rows locked by others."""

    def unclaimed_rows(self, key: str, number: int) -> Sequence[Job]:
        """List and lock pending rows of a key with a slot, in any order; not rows locked by others."""

    def limited_keys(self, after: str, number: int) -> Sequence[str]:
        """List keys after ``after`` for which rows are held, in order."""

    def drop_due_results(self, ids: Sequence[str], now: datetime) -> None:
        """Delete the due times of these rows' results, up to this time."""

    def seen_pauses(self) -> Sequence[Pause]:
        """List all pauses without a lock: another transaction may change them meanwhile."""

    def pauses(self, *, to_change: bool = False) -> Sequence[Pause]:
        """List all pauses. No other transaction changes them before this one ends."""

    def may_move(self) -> bool:
        """Check whether this transaction may advance a resume; False while another does."""

    def set_pause(self, pause: Pause) -> None:
        """Write the state of a new or existing pause."""

    def drop_pause(self, scope: Scope) -> None: ...

    def paused_rows(self, limit: int, after: ClaimPosition | None) -> list[Job]:
        """List rows held by a pause after this position, in claim order."""

    def claimable_rows(self, limit: int, after: ClaimPosition | None) -> Sequence[RowPosition]:
        """List claimable rows after this position, in claim order, without locks."""

    def idle_locks(self, limit: int) -> Sequence[str]:
        """List free keys with parked rows and without a claimable row."""

    def doubtful_parents(self, limit: int) -> Sequence[Job]:
        """List waiting parents with a cancel request, without open children, or with wrong counts."""


def storable(values: Iterable[object]) -> bool:
    """Check whether a row can hold these values. A database refuses even a search for other text."""
    try:
        return not any(b"\0" in value.encode() for value in values if isinstance(value, str))
    except UnicodeEncodeError:
        return False


def page(query: JobQuery, jobs: Iterable[Job]) -> list[Job]:
    """Order matching jobs, and take those after the position of the query, up to its limit."""
    ordered = sorted(jobs, key=lambda job: job.queue_id, reverse=query.newest_first)
    after = query.after
    if query.by_priority:
        ordered.sort(key=lambda job: -job.priority)
    if after is None:
        return ordered[: query.limit]

    def comes_later(job: Job) -> bool:
        if query.by_priority and job.priority != query.after_priority:
            return job.priority < (query.after_priority or 0)
        return bool(job.queue_id < after if query.newest_first else job.queue_id > after)

    return [job for job in ordered if comes_later(job)][: query.limit]


def searched_texts(text: str) -> tuple[str, str]:
    """A searched text in the form of names and messages, and in the form of payloads; ASCII in lower case."""
    return _small(text), _small(msgspec.json.encode(text).decode()[1:-1])


def contains(job: Job, text: str) -> bool:
    """Check whether the id, the payload or the message of a job has the text."""
    plain, quoted = searched_texts(text)
    found = plain in _small(job.queue_id) or plain in _small(job.error_message or "")
    return found or quoted in _small(job.payload_json)


def _small(text: str) -> str:
    """Lower case of ASCII letters only: the same in every engine."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def refuse_unstorable(new: Sequence[NewJob] | Sequence[Job]) -> None:
    """Refuse text which at least one engine cannot store."""
    whole = bool(new) and isinstance(new[0], Job)
    for item in new:
        names = (item.queue_id, item.tenant_id, item.collection, item.branch, item.idempotency_key)
        text = "".join((*names, item.submitted_by, item.lock_key or "", item.metadata, item.payload_json))
        if item.limit_key is not None or item.backlog_key is not None:
            text += f"{item.limit_key or ''}{item.backlog_key or ''}"
        if whole and isinstance(item, Job):
            text += "".join(filter(None, (item.error_code, item.error_message, item.result_json)))
        if "\0" in text:
            raise InvalidText(f"job {item.queue_id!r} holds a NUL character")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidText(f"job {item.queue_id!r} holds a lone surrogate") from None


def wake(rows: Rows, lock_keys: Collection[str], now: datetime) -> int:
    """Make the first row parked for each free lock claimable. Returns the count."""
    parked = rows.first_parked(lock_keys)
    for job in parked:
        turn = SUSPECT if job.turn == SUSPECT else RETURNED
        after = rows.change(job, {"held": None, "turn": turn, "updated_at": now})
        if after.held is Held.LIMIT and after.lock_key is not None:
            rows.limited_locks.add(after.lock_key)
    return len(parked)
