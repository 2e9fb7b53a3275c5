"""Pauses: the phases of a pause, and the order in which a resume releases rows.

A pause starts as ``PAUSED``. A resume turns it into ``GATHERING``: rows of its scope that can still be
claimed are held back as well, in batches, so that none of them runs before an older one that a claim has held
back. Then it is ``RELEASING``: the rows go back in the order of priority, created_at and queue_id, with new
turns, so that the tenant neither loses its order nor passes the others. Rows added meanwhile are held back
when they are added. A stop at any point loses nothing: the state and the place reached are in the store.

A pause of everything holds back no row: a claim then reads and takes no rows.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from penstock.job import Changes, Held, Job, Scope
from penstock.named_tuple import NamedTuple

EVERYTHING = Scope()

ABOVE_ALL = 11
"""A priority above that of every row."""

MOVED_AT_ONCE = 1_000
"""Rows read by one transaction of a resume."""

RESUME_STEPS = 3
"""Batches that one call of ``resume`` moves itself; claims and upkeep move the others."""


class PauseState(enum.StrEnum):
    """Phase of a pause, from ``pause`` to the end of ``resume``."""

    PAUSED = "paused"
    GATHERING = "gathering"
    RELEASING = "releasing"


class ClaimPosition(msgspec.Struct, frozen=True, array_like=True):
    """A position in the claim order, with or without a row."""

    priority: int
    turn: int
    created_at: datetime
    queue_id: str

    @property
    def key(self) -> tuple[int, int, datetime, str]:
        return (-self.priority, self.turn, self.created_at, self.queue_id)


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """A paused scope, and (``at``) the position of the resume."""

    scope: Scope
    phase: PauseState = PauseState.PAUSED
    at: ClaimPosition | None = None

    @property
    def order(self) -> tuple[str, str]:
        return (self.scope.tenant_id, self.scope.collection)

    def covers(self, tenant_id: str, collection: str) -> bool:
        return self.scope != EVERYTHING and self.scope.covers(tenant_id, collection)

    def passed(self, place: ClaimPosition) -> bool:
        """Check whether the release has passed this position."""
        return self.phase is PauseState.RELEASING and self.at is not None and place.key <= self.at.key


class RowPosition(NamedTuple):
    """Columns of a claimable row which a resume reads before the lock."""

    queue_id: str
    tenant_id: str
    collection: str
    priority: int
    turn: int
    created_at: datetime

    @property
    def place(self) -> ClaimPosition:
        return ClaimPosition(self.priority, self.turn, self.created_at, self.queue_id)


def place_of(job: Job) -> ClaimPosition:
    return ClaimPosition(job.priority, job.turn, job.created_at, job.queue_id)


def everything_paused(pauses: Iterable[Pause]) -> bool:
    """Check whether everything is paused."""
    return any(pause.scope == EVERYTHING for pause in pauses)


def held_scopes(pauses: Iterable[Pause]) -> frozenset[Scope]:
    """Return the scopes of rows held back by a claim."""
    return frozenset(
        pause.scope
        for pause in pauses
        if pause.phase is not PauseState.RELEASING and pause.scope != EVERYTHING
    )


def paused_scopes(pauses: Iterable[Pause]) -> frozenset[Scope]:
    return frozenset(pause.scope for pause in pauses if pause.phase is PauseState.PAUSED)


def active_resume(pauses: Iterable[Pause]) -> Pause | None:
    """Return the resume to advance, if any: one at a time."""
    return min(
        (pause for pause in pauses if pause.phase is not PauseState.PAUSED),
        key=lambda pause: pause.order,
        default=None,
    )


def held_during_resume(job: Job, pauses: Collection[Pause]) -> Job:
    """Hold a new row back while a resume of the scope still has to release older rows."""
    if not pauses or job.held is not None:
        return job
    parked = msgspec.structs.replace(job, held=Held.PAUSE, turn=0)
    resumes = [pause for pause in pauses if pause.phase is not PauseState.PAUSED]
    return parked if is_kept(parked, resumes) else job


def raised(job: Job, changes: Changes, pauses: Collection[Pause]) -> Changes:
    """Release a held row if a resume has passed the position of the new priority."""
    if job.held is not Held.PAUSE or "priority" not in changes:
        return changes
    if is_kept(msgspec.structs.replace(job, priority=changes["priority"]), pauses):
        return changes
    return changes | released(job)


def is_kept(job: Job, pauses: Iterable[Pause]) -> bool:
    """Check whether a pause holds the row back, or has a resume before this position."""
    place = place_of(job)
    return any(pause.covers(job.tenant_id, job.collection) and not pause.passed(place) for pause in pauses)


def released(job: Job) -> Changes:
    """Return the changes which make a held row claimable, after the other rows of the tenant."""
    changes: Changes = {"held": None}
    if job.turn >= 0:
        changes["turn"] = None
    return changes
