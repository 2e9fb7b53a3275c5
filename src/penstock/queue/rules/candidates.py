"""Which candidates of a claim are taken and which are held back: the same decision on every engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.job import SUSPECT, Held, Scope

ROUNDS = 4
"""How often one transaction of a claim looks for candidates. What is chosen depends on how many are seen at
once, so every engine looks at as many: the limit at first, then ``HELD_BACK_AT_ONCE``."""

HELD_BACK_AT_ONCE = 1_000
"""Rows looked at in a round that follows one where rows had to be held back."""

DUE_AT_ONCE = 1_000
"""Due rows that one claim promotes, or its limit if that is more; the next claims promote the rest."""


class Claimable(Protocol):
    """What the decision needs to know of a claimable row. A ``Job`` has it all."""

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
    """For engines that do not have the whole job yet; ``row`` is the engine's handle on it."""

    row: int | str
    turn: int
    lock_key: str | None
    lock_held: bool
    tenant_id: str
    collection: str


class Chosen(NamedTuple, Generic[C]):
    take: list[C]
    hold: list[tuple[C, Held]]
    closed: bool
    """No further candidates may join this claim: it is full, or a crash suspect bars the way."""


Choice: TypeAlias = Chosen[Candidate]


def choose(
    candidates: Iterable[C],
    room: int,
    *,
    first: bool,
    locked: Collection[str],
    paused: Collection[Scope],
) -> Chosen[C]:
    """``first``: nothing was taken yet. ``locked``: keys that others hold or this claim took before."""
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
            # It may take its process down, so nothing else may be in the same hands.
            if first and not take:
                return Chosen([candidate], hold, True)
            return Chosen(take, hold, True)
        take.append(candidate)
        if key is not None:
            mine.add(key)
    return Chosen(take, hold, len(take) == room)
