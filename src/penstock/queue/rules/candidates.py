"""Candidates of a claim: the rule which rows are taken and which are held back, for every engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from penstock.job import SUSPECT, Held, Scope
from penstock.named_tuple import NamedTuple

ROUNDS = 4
"""Times that one transaction of a claim reads candidates. The choice depends on the number of rows seen at
once, so every engine reads as many: the limit at first, then ``HELD_BACK_AT_ONCE``."""

HELD_BACK_AT_ONCE = 1_000
"""Rows read in a round after one that held rows back."""

DUE_AT_ONCE = 1_000
"""Due rows that one claim promotes, or its limit if that is more; the next claims promote the rest."""


class Claimable(Protocol):
    """Columns of a claimable row used by the decision. A ``Job`` has all of them."""

    @property
    def turn(self) -> int: ...
    @property
    def lock_key(self) -> str | None: ...
    @property
    def lock_held(self) -> bool: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def collection(self) -> str: ...


C = TypeVar("C", bound=Claimable)


class Candidate(NamedTuple):
    """A row for which the engine has not read the whole job; ``row`` is the engine's handle."""

    row: int | str
    turn: int
    lock_key: str | None
    lock_held: bool
    tenant_id: str
    collection: str


class Chosen(NamedTuple, Generic[C]):
    """Rows to take, and rows to hold back with the reason."""

    take: list[C]
    hold: list[tuple[C, Held]]
    closed: bool
    """No more rows may join this claim: the claim is full, or the next row is a crash suspect."""


Choice: TypeAlias = Chosen[Candidate]


def choose(
    candidates: Sequence[C],
    room: int,
    *,
    first: bool,
    locked: Collection[str],
    paused: Collection[Scope],
) -> Chosen[C]:
    """Choose rows. ``first``: nothing was taken yet. ``locked``: keys held by others or by this claim."""
    if not paused and all_free(candidates, locked) and len(candidates) <= room:
        return Chosen(list(candidates), [], len(candidates) == room)
    take: list[C] = []
    hold: list[tuple[C, Held]] = []
    mine: set[str] = set()
    for candidate in candidates:
        if len(take) == room:
            return Chosen(take, hold, True)
        key = candidate.lock_key
        if paused and any(scope.covers(candidate.tenant_id, candidate.collection) for scope in paused):
            hold.append((candidate, Held.PAUSE))
            continue
        if key is not None and not candidate.lock_held and (key in mine or key in locked):
            hold.append((candidate, Held.LOCK))
            continue
        if candidate.turn == SUSPECT:
            # A crash suspect is claimed alone: it may take its process down.
            if first and not take:
                return Chosen([candidate], hold, True)
            return Chosen(take, hold, True)
        take.append(candidate)
        if key is not None:
            mine.add(key)
    return Chosen(take, hold, len(take) == room)


def all_free(candidates: Sequence[Claimable], locked: Collection[str]) -> bool:
    """Check whether nothing but a pause keeps rows from one claim: usual, and cheaper than row by row."""
    keys = [candidate.lock_key for candidate in candidates if candidate.lock_key is not None]
    return (
        len(set(keys)) == len(keys)
        and not [key for key in keys if key in locked]
        and SUSPECT not in [candidate.turn for candidate in candidates]
    )
