"""One claim on PostgreSQL: look and lock, choose, take, hold back.

Locks of jobs follow a protocol, as several claimers look at once: each key is tried as an advisory lock by
the look itself (failing means park, never wait); whether it is held is asked by a later statement; and after
the commit whoever freed a key or parked for it looks once more (``wake``), so that no row waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import psycopg

from penstock.job import SUSPECT, Claim, ClaimRequest, Held, Scope
from penstock.queue import settling
from penstock.queue.choosing import HELD_BACK_AT_ONCE, ROUNDS, Candidate, Choice, choose
from penstock.queue.sql.postgres_rows import PostgresRows
from penstock.queue.sql.postgres_values import texts, times
from penstock.queue.sql.statements import CLAIM_COLUMNS

_OWN = 5
"""Columns of a candidate before those of its claim: id, turn, lock_key, whether it holds the lock, got it."""
_TENANT_AT = _OWN + CLAIM_COLUMNS.index("tenant_id")
_COLLECTION_AT = _OWN + CLAIM_COLUMNS.index("collection")
_TYPE_AT = _OWN + CLAIM_COLUMNS.index("item_type")
Row: TypeAlias = tuple[Any, ...]
Cursor: TypeAlias = psycopg.Cursor[Row]


class Look(NamedTuple):
    """What was sent and not read yet."""

    state: Cursor
    candidates: Cursor


class Taken(NamedTuple):
    """Claims that are true once ``update`` is known to have changed as many rows."""

    claims: list[Claim]
    update: Cursor | None

    @property
    def true(self) -> bool:
        return self.update is None or self.update.rowcount == len(self.claims)


class PostgresClaim:
    def __init__(self, rows: PostgresRows, request: ClaimRequest, now: datetime) -> None:
        self._rows = rows
        self._request = request
        self._now = now
        self.rows_read = 0

    # The usual case, in which there is nothing to choose.

    def look(self) -> Look:
        state = self._rows.send("state", now=self._now)
        return Look(state, self._rows.send("candidates", limit=self._request.limit))

    def take_all(self, look: Look, *, freed: bool) -> Taken | None:
        """None where there is something to choose: it is then done by ``run``, in the same transaction."""
        ((paused, due, parked),) = look.state.fetchall()
        found = look.candidates.fetchall()
        if paused or due or (freed and parked) or self._request.oldest:
            return None
        self.rows_read = len(found)
        if any(row[1] == SUSPECT or not row[4] for row in found):
            return None
        keys = [row[2] for row in found if row[2] is not None and not row[3]]
        if len(set(keys)) < len(keys):
            return None
        return self._take(found, keys)

    # The general case.

    def run(self) -> list[Claim] | None:
        rows, self.rows_read = self._rows, 0
        paused = self._prepare()
        taken: list[Claim] = []
        size = self._request.limit
        for number in range(ROUNDS):
            found, cut = self._candidates(size, oldest=self._request.oldest and number == 0)
            choice = self._choose(found, len(taken), paused)
            by_id = {row[0]: row for row in found}
            # First what is taken: a row held back must not wake another for a lock that is taken now.
            taken += self._take([by_id[candidate.row] for candidate in choice.take], []).claims
            self._hold(rows, choice)
            if choice.closed or (not choice.hold and not cut) or (cut and not found):
                return taken
            size = max(self._request.limit, HELD_BACK_AT_ONCE)
        return taken or None

    def _prepare(self) -> frozenset[Scope]:
        ((paused, due, _),) = self._rows.ask("state", now=self._now)
        if due:
            promoted = self._rows.scalar("promote", now=self._now)
            self._rows.news = self._rows.news or promoted > self._request.limit
        return self._rows.pauses() if paused else frozenset()

    def _candidates(self, size: int, *, oldest: bool) -> tuple[list[Row], bool]:
        """Up to the first whose lock was not even tried; whether that has cut some off."""
        first = self._rows.ask("priority_head") if oldest else []
        found = self._rows.ask("candidates", limit=size)
        if first:
            found = [*first, *(row for row in found if row[0] != first[0][0])][:size]
        untried = next((place for place, row in enumerate(found) if row[4] is None), len(found))
        self.rows_read += untried
        return found[:untried], untried < len(found)

    def _choose(self, found: Sequence[Row], taken: int, paused: frozenset[Scope]) -> Choice:
        candidates = [
            Candidate(row[0], row[1], row[2], row[3], row[_TENANT_AT], row[_COLLECTION_AT]) for row in found
        ]
        locked = {row[2] for row in found if not row[4]}
        wanted = {row[2] for row in found if row[2] is not None and not row[3]} - locked
        if wanted:
            locked |= {key for (key,) in self._rows.ask("held_locks", keys=texts(wanted))}
        room = self._request.limit - taken
        return choose(candidates, room, first=not taken, locked=locked, paused=paused)

    def _hold(self, rows: PostgresRows, choice: Choice) -> None:
        held = choice.hold
        for_lock = [each for each, reason in held if reason is Held.LOCK]
        for_pause = [each for each, reason in held if reason is Held.PAUSE]
        if for_lock:
            rows.send("hold_for_lock", now=self._now, ids=texts(str(each.row) for each in for_lock))
            rows.to_wake.update(each.lock_key for each in for_lock if each.lock_key is not None)
        if for_pause:
            rows.send("hold_for_pause", now=self._now, ids=texts(str(each.row) for each in for_pause))
            # Each of them may have been the one woken to take its lock next.
            keys = [each.lock_key for each in for_pause if each.lock_key is not None and not each.lock_held]
            rows.to_wake.update(keys)
            if keys and rows.scalar("any_parked"):
                for key in keys:
                    settling.wake(rows, [key], self._now)

    def _take(self, found: Sequence[Row], keys: Sequence[str]) -> Taken:
        if not found:
            return Taken([], None)
        leases = {
            item_type: self._now + self._request.lease_of(item_type)
            for item_type in {row[_TYPE_AT] for row in found}
        }
        update = self._rows.send(
            "take",
            now=self._now,
            worker_id=self._request.worker_id,
            ids=texts(row[0] for row in found),
            leases=times(leases[row[_TYPE_AT]] for row in found),
            keys=texts(keys),
        )
        return Taken([_claim(row, leases[row[_TYPE_AT]]) for row in found], update)


def _claim(row: Row, until: datetime) -> Claim:
    values = (*row[_OWN:], until)
    return Claim(*values)
