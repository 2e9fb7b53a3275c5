"""One claim on SQLite: read candidates, choose, take, hold back; a few rounds in one short transaction."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Any

from penstock.clock import format_time, read_time
from penstock.job import SUSPECT, Claim, ClaimRequest, Held, Scope
from penstock.queue.rules.candidates import DUE_AT_ONCE, HELD_BACK_AT_ONCE, ROUNDS, Candidate, Choice, choose
from penstock.queue.rules.rows import wake
from penstock.queue.sql.statements import CLAIM_COLUMNS
from penstock.queue.sqlite.rows import SQL, SqliteRows
from penstock.queue.sqlite.values import AT_ONCE, SPILLED, as_list

_OWN = 5
"""Columns of a candidate before its claim: rowid, turn, lock_key, lock held by this row, held by any row."""
_ID_AT = _OWN + CLAIM_COLUMNS.index("queue_id")
_TENANT_AT = _OWN + CLAIM_COLUMNS.index("tenant_id")
_COLLECTION_AT = _OWN + CLAIM_COLUMNS.index("collection")
_TYPE_AT = _OWN + CLAIM_COLUMNS.index("item_type")
_PRIORITY_AT = _OWN + CLAIM_COLUMNS.index("priority")
_CREATED_AT = _OWN + CLAIM_COLUMNS.index("created_at")
_PAYLOAD_AT = _OWN + CLAIM_COLUMNS.index("payload_json")


class SqliteClaim:
    """One claim inside a transaction."""

    def __init__(self, cursor: sqlite3.Cursor, request: ClaimRequest, now: datetime) -> None:
        self._cursor = cursor
        self._request = request
        self._now = now
        self._at = format_time(now)
        self.rows_read = 0

    def ahead(self) -> tuple[bool, bool]:
        """Check whether there is a pause, and whether a scheduled row is due."""
        paused, due = self._cursor.execute(SQL["before_claim"], (self._at,)).fetchone()
        return paused == 1, due == 1

    def run(self, rows: SqliteRows, paused: frozenset[Scope], *, due: bool) -> list[Claim] | None:
        if due:
            self._cursor.execute(SQL["promote"], (self._at, max(self._request.limit, DUE_AT_ONCE)))
        taken: list[Claim] = []
        size = self._request.limit
        for number in range(ROUNDS):
            found = self._candidates(size, oldest=self._request.oldest and number == 0)
            if not paused and not taken and self._all_free(found):
                return self._take(rows, found)
            choice = self._choose(found, len(taken), paused)
            by_row = {row[0]: row for row in found}
            # Taken rows first: a row held back must not wake another for a lock that is taken now.
            taken += self._take(rows, [by_row[candidate.row] for candidate in choice.take])
            self._hold(rows, choice)
            if choice.closed or not choice.hold:
                return taken
            size = max(self._request.limit, HELD_BACK_AT_ONCE)
        return taken or None

    def _candidates(self, size: int, *, oldest: bool) -> list[tuple[Any, ...]]:
        found = self._cursor.execute(SQL["candidates"], (size,)).fetchall()
        if oldest and found:
            heads = [self._cursor.execute(SQL["priority_head"], (p,)).fetchone() for p in range(10, -1, -1)]
            first = min((head for head in heads if head), key=lambda row: (row[_CREATED_AT], row[_ID_AT]))
            if not self._parked_before(first):
                found = [first, *(row for row in found if row[0] != first[0])][:size]
        self.rows_read += len(found)
        return found

    def _parked_before(self, row: tuple[Any, ...]) -> bool:
        """Check whether a parked row of the same lock and priority comes first."""
        if row[2] is None or row[3] == 1:
            return False
        place = (row[2], row[_PRIORITY_AT], row[1], row[_CREATED_AT], row[_ID_AT])
        return self._cursor.execute(SQL["parked_before"], place).fetchone() is not None

    def _all_free(self, found: list[tuple[Any, ...]]) -> bool:
        """Check whether all rows can be taken: no suspect, and every lock is free."""
        if len(found) > self._request.limit:
            return False
        seen: set[str] = set()
        for row in found:
            turn, key, held_by_row, held = row[1:_OWN]
            if turn == SUSPECT:
                return False
            if key is not None and not held_by_row:
                if held or key in seen:
                    return False
                seen.add(key)
        return True

    def _choose(self, found: list[tuple[Any, ...]], taken: int, paused: frozenset[Scope]) -> Choice:
        candidates = [
            Candidate(row[0], row[1], row[2], row[3] == 1, row[_TENANT_AT], row[_COLLECTION_AT])
            for row in found
        ]
        return choose(
            candidates,
            self._request.limit - taken,
            first=not taken,
            locked={row[2] for row in found if row[4]},
            paused=paused,
        )

    def _hold(self, rows: SqliteRows, choice: Choice) -> None:
        for candidate, reason in choice.hold:
            name = "hold_for_lock" if reason is Held.LOCK else "hold_for_pause"
            self._cursor.execute(SQL[name], (self._at, candidate.row))
            if reason is Held.PAUSE and candidate.lock_key is not None and not candidate.lock_held:
                # The row may have been woken for this lock.
                wake(rows, [candidate.lock_key], self._now)

    def _take(self, rows: SqliteRows, found: list[tuple[Any, ...]]) -> list[Claim]:
        by_type: dict[str, list[int]] = {}
        for row in found:
            by_type.setdefault(row[_TYPE_AT], []).append(row[0])
        leases = {item_type: self._now + self._request.lease_of(item_type) for item_type in by_type}
        by_lease: dict[datetime, list[int]] = {}
        for item_type, numbers in by_type.items():
            by_lease.setdefault(leases[item_type], []).extend(numbers)
        for until, numbers in by_lease.items():
            self._take_rows(numbers, (self._request.worker_id, format_time(until), self._at, self._at))
        return [_claim(row, leases[row[_TYPE_AT]], rows) for row in found]

    def _take_rows(self, numbers: list[int], values: tuple[str, ...]) -> None:
        if len(numbers) < AT_ONCE:
            self._cursor.executemany(SQL["take"], [(*values, number) for number in numbers])
        else:
            self._cursor.execute(SQL["take_all"], (*values, as_list(numbers)))


def _claim(row: tuple[Any, ...], until: datetime, rows: SqliteRows) -> Claim:
    """Build a claim from a row. Payload, created_at and lease_until are the last fields."""
    payload = row[_PAYLOAD_AT]
    if payload == SPILLED:
        payload = rows.payload(row[_ID_AT])
    values = (*row[_OWN:_PAYLOAD_AT], payload, read_time(row[_CREATED_AT]), until)
    return Claim(*values)
