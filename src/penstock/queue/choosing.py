"""Which candidates of a claim are taken and which are held back: the same decision on every engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.job import SUSPECT, Held, Scope


class Candidate(NamedTuple):
    """What the decision needs to know of a claimable row; ``row`` is the engine's handle on it."""

    row: int | str
    turn: int
    lock_key: str | None
    lock_held: bool
    tenant_id: str
    collection: str


class Choice(NamedTuple):
    take: list[Candidate]
    hold: list[tuple[Candidate, Held]]
    closed: bool
    """No further candidates may join this claim: it is full, or a crash suspect bars the way."""


def choose(
    candidates: Iterable[Candidate],
    room: int,
    *,
    first: bool,
    locked: Collection[str],
    paused: Collection[Scope],
) -> Choice:
    """``first``: nothing was taken yet. ``locked``: keys that others hold or this claim took before."""
    take: list[Candidate] = []
    hold: list[tuple[Candidate, Held]] = []
    mine: set[str] = set()
    for candidate in candidates:
        if len(take) == room:
            return Choice(take, hold, True)
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
                return Choice([candidate], hold, True)
            return Choice(take, hold, True)
        take.append(candidate)
        if key is not None:
            mine.add(key)
    return Choice(take, hold, len(take) == room)
