"""Addition of plain jobs on SQLite: the rules of ``rules/addition``, with few objects and statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from penstock import transitions
from penstock.clock import format_new_time
from penstock.job import NewJob
from penstock.queue.sql.statements import ROWS_AT_ONCE, load
from penstock.queue.sqlite.values import ENCODED, SPILL_OVER

SQL = load("sqlite")
_ADD_PLAIN, _HEAD_TURN, _LAST_TURN = SQL["add_plain"], SQL["head_turn"], SQL["last_turn"]
_INSERT_JOB, _INSERT_JOBS = SQL["insert_job"], SQL["insert_jobs"]


class Refused(Exception):
    """The general path has to add the jobs; the transaction must be undone."""


def are_plain(new: Sequence[NewJob]) -> bool:
    """Check whether each job is claimable at once, with the payload in the row, and none meets another.

    The ids of several jobs must be in order, as the jobs share their time.
    """
    for each in new:
        # As NewJob.plain, without a call for each job.
        if each.run_at or each.after or each.limit_key or each.backlog_key or each.result_ttl_s:
            return False
        if len(each.payload_json) > SPILL_OVER:
            return False
    if len(new) == 1:
        return True
    ids = [each.queue_id for each in new]
    if any(map(str.__ge__, ids, ids[1:])):
        return False
    keys = [(each.tenant_id, each.branch, each.idempotency_key) for each in new if each.dedupe]
    return len(set(keys)) == len(keys)


def insert_plain(connection: sqlite3.Connection, new: Sequence[NewJob], now: datetime) -> None:
    """Insert plain jobs as the rules would. Raises ``Refused`` if a pause or a live duplicate is in the way.

    A taken id fails the statement.
    """
    at = format_new_time(now)
    if len(new) == 1:
        _insert_one(connection, new[0], at)
        return
    turns: dict[tuple[str, int], int] = {}
    rows = []
    for each in new:
        flow = (each.tenant_id, each.priority)
        last = turns.get(flow)
        # The rows of a flow are behind each other, so only the first asks for the head of the queue.
        turn = turns[flow] = _first_turn(connection, flow) if last is None else last + 1
        rows.append(plain_row(each, at, turn))
    whole = len(rows) - len(rows) % ROWS_AT_ONCE
    inserted = 0
    for start in range(0, whole, ROWS_AT_ONCE):
        values = list(chain.from_iterable(rows[start : start + ROWS_AT_ONCE]))
        inserted += connection.execute(_INSERT_JOBS, values).rowcount
    if whole < len(rows):
        inserted += connection.executemany(_INSERT_JOB, rows[whole:]).rowcount
    if inserted != len(rows):
        raise Refused


def _insert_one(connection: sqlite3.Connection, new: NewJob, at: str) -> None:
    values = (
        *(new.queue_id, new.item_type, new.op, new.tenant_id, new.collection, new.branch, new.priority),
        *(at, new.idempotency_key, ENCODED[new.dedupe], new.max_retries, new.timeout_s),
        *(new.submitted_by, new.lock_key, new.payload_json, new.metadata),
    )
    try:
        inserted = connection.execute(_ADD_PLAIN, values).rowcount
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_NOTNULL:
            raise
        raise Refused from error
    if inserted != 1:
        raise Refused


def _first_turn(connection: sqlite3.Connection, flow: tuple[str, int]) -> int:
    head, paused = connection.execute(_HEAD_TURN, flow[1:]).fetchone()
    if paused:
        raise Refused
    last = connection.execute(_LAST_TURN, flow).fetchone()
    return transitions.next_turn(head, last[0] if last else None)


def plain_row(new: NewJob, at: str, turn: int) -> tuple[Any, ...]:
    """The values of ``INSERTED_COLUMNS``."""
    return (
        *(new.queue_id, new.item_type, new.op, new.tenant_id, new.collection, new.branch, new.priority),
        *(at, at, new.idempotency_key, ENCODED[new.dedupe], new.max_retries, new.timeout_s),
        *(new.submitted_by, turn, None, None, new.lock_key, None, None, new.queue_id),
        *(new.payload_json, new.metadata),
    )
