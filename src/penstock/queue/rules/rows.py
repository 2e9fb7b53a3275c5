"""How the rules reach the rows of one engine, inside one transaction of it.

``adding``, ``settling``, ``cancelling``, ``requeueing`` and ``pausing`` decide over this interface, so each
rule is written once. An engine supplies the rows, the transaction around them, and shortcuts for the plain
path (``finish``) where a single statement can do what the general path does in three.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from penstock.job import Changes, Job, NewJob, Scope, Settlement, Status
from penstock.queue.rules.pauses import ClaimPosition, Pause, RowPosition


class ChildCount(NamedTuple):
    total: int
    open: int
    failed: int


class Finished(NamedTuple):
    """What ``finish`` has ended."""

    over: Sequence[bool]
    """One for each claim. False: take the general path."""
    freed: Collection[str] = ()
    """Locks that are free now and that rows may be parked for."""
    parents: Sequence[tuple[str, int | None]] = ()
    """Parent and its run, once for each child that is over."""


class Rows(Protocol):
    def get(self, queue_id: str) -> Job | None:
        """The row, to be decided upon: nobody else changes it before the transaction ends."""

    def peek(self, queue_id: str) -> Job | None:
        """The row, to be looked at only."""

    def hold(self, ids: Collection[str]) -> None:
        """These are about to be got: where rows are locked one by one, all at once and in one order."""

    def live(self, tenant_id: str, branch: str, key: str) -> Job | None:
        """The live top-level row with this key, if there is one."""

    def refuse_taken(self, new: Sequence[NewJob], parent: Job | None = None) -> None:
        """Raise ``DuplicateId`` before anything is written, where ``try_insert`` could not be undone.
        A child the parent's run has already is none: an expansion may be sent twice.
        """

    def try_insert(self, job: Job) -> bool:
        """False, and nothing written, when its key is live (top level) or known to its parent's run.
        Raises ``DuplicateId`` when the id is taken.
        """

    def change(self, job: Job, changes: Changes) -> Job: ...

    def finish(self, settlements: Sequence[Settlement], now: datetime) -> Finished:
        """End plain claims as done: no follow-up, no children. Their parents are left to the caller."""

    def backlog(self, *, functions: bool, tenant_id: str | None, cap: int) -> int:
        """Pending top-level rows of that class, counted up to ``cap``."""

    def head_turn(self, priority: int) -> int | None:
        """Smallest turn >= 0 that can be claimed now."""

    def last_turn(self, tenant_id: str, priority: int) -> int | None:
        """Largest turn among the tenant's pending rows of that priority, held ones included."""

    def lock_holder(self, lock_key: str) -> str | None:
        """The id of the job that holds this lock."""

    def first_parked(self, lock_keys: Collection[str]) -> Sequence[Job]:
        """For each of these locks that nobody holds, the first row parked for it, if there is one.

        Not while a row of the lock that comes before it can be claimed and has a turn below zero: both would
        have the same turn, and their ids might decide. An engine whose writers can meet leaves it out as well
        while an earlier row of its tenant and priority can be claimed.
        """

    def parked_rows(self, scope: Scope, limit: int) -> Sequence[Job | None]:
        """Parked rows of a scope, by lock, then in claim order; None for one that another has locked."""

    def children(self, parent: Job, statuses: Collection[Status], limit: int) -> list[Job]:
        """Of the parent's current run, in id order; running ones only while not yet asked to stop."""

    def child_count(self, parent: Job) -> ChildCount: ...

    def pauses(self, *, to_change: bool = False) -> Sequence[Pause]:
        """Every pause, as it stays until the transaction ends (or this transaction changes it)."""

    def may_move(self) -> bool:
        """Whether this transaction may move rows of a resume; False while another does."""

    def set_pause(self, pause: Pause) -> None:
        """Write the state of a pause, new or known."""

    def drop_pause(self, scope: Scope) -> None: ...

    def paused_rows(self, limit: int, after: ClaimPosition | None) -> list[Job]:
        """Rows held by a pause, in claim order, after that place."""

    def claimable_rows(self, limit: int, after: ClaimPosition | None) -> Sequence[RowPosition]:
        """Rows that can be claimed, in claim order, after that place; to be looked at only."""

    def idle_locks(self, limit: int) -> Sequence[str]:
        """Keys with parked rows that nobody holds and no claimable row will take up."""

    def doubtful_parents(self, limit: int) -> Sequence[Job]:
        """Waiting parents that were asked to stop, wait for nobody, or count their children wrongly."""
