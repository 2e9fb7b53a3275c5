"""Claiming tasks: a batch across documents, in one short transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock.catalog.rules.rollup import PROCESSING, WAITING
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import Gate, Phase, Place, Task, TaskRequest, TaskSource
from penstock.clock import format_time
from penstock.errors import FingerprintMismatch

ROUNDS = 16
EVICTED_AT_ONCE = 1_000
"""Tasks of one dropped generation that a claim takes out of the lane before it looks again."""


def claim(rows: Statements, request: TaskRequest, now: datetime) -> list[Task]:
    _refuse_other_fingerprint(rows, request)
    at = format_time(now)
    for _ in range(ROUNDS):
        ids = _choose(rows, request, at)
        if not ids:
            return []
        found = {row[0]: row for row in rows.all(f"candidates_{request.lane}", listed(ids))}
        rows.hold("documents", listed({row[2] for row in found.values()}))
        about = _sources(rows, {row[2] for row in found.values()})
        taken = [found[number] for number in ids if number in found and about[found[number][2]] is not None]
        dropped = [(at, number, EVICTED_AT_ONCE) for number, source in about.items() if source is None]
        rows.many(f"evict_{request.lane}", dropped)
        if taken:
            _take(rows, request, taken, at)
            return [_task(request.lane, row, about[row[2]]) for row in taken]
    return []


def _refuse_other_fingerprint(rows: Statements, request: TaskRequest) -> None:
    if request.fingerprint is None:
        return
    known: dict[str, str] = dict(rows.all("fingerprints"))
    expected = known.get(request.lane)
    if expected not in (None, request.fingerprint):
        raise FingerprintMismatch(
            f"{request.lane} is done with {expected} here, {request.worker_id} would do it with"
            f" {request.fingerprint}"
        )


def _choose(rows: Statements, request: TaskRequest, at: str) -> list[int]:
    """Due retries first, then what waits. A crash suspect only as the first, and then alone."""
    chosen: list[int] = []
    for number, suspect in rows.all(f"due_{request.lane}", at, request.limit):
        if suspect:
            # What else is due was seen, and is not taken.
            rows.tell()
            return chosen or [number]
        chosen.append(number)
    if len(chosen) < request.limit:
        waiting = rows.all(f"waiting_{request.lane}", request.limit - len(chosen))
        chosen += [number for number, _ in waiting]
    return chosen


def _take(rows: Statements, request: TaskRequest, taken: list[tuple[Any, ...]], at: str) -> None:
    bubbling = Rollup(rows, at, beginning=True)
    bubbling.load(row[2] for row in taken)
    rows.many(f"take_{request.lane}", [(request.worker_id, at, row[4], row[0]) for row in taken])
    for row in taken:
        if request.lane is Phase.OCR:
            bubbling.page_moved(Phase.OCR, row[2], WAITING, PROCESSING)
        else:
            bubbling.chunk_moved(request.lane, row[1], WAITING, PROCESSING)
        bubbling.touch(row[2]).worker_id = request.worker_id
    bubbling.apply()


def _sources(rows: Statements, ids: set[int]) -> dict[int, TaskSource | None]:
    """None for generations that were dropped."""
    about: dict[int, TaskSource | None] = {}
    for row in rows.all("task_sources", listed(ids)):
        described = msgspec.json.decode(row[11])
        about[row[0]] = (
            None
            if row[10] == "dropped"
            else TaskSource(
                document_id=row[0],
                source_id=row[1],
                place=Place(row[2], row[3], row[4]),
                path=row[5],
                content_hash=row[6],
                space=row[7],
                job_id=row[8],
                graph=row[9] == 1,
                title=described.get("title", row[12]),
                file_type=described.get("file_type", row[13]),
                gate=Gate(row[14]),
            )
        )
    return about


def _task(lane: Phase, row: tuple[Any, ...], source: TaskSource | None) -> Task:
    assert source is not None
    chunk_id, text_hash, text, heading_path, symbols = row[10:15] if len(row) > 10 else ("",) * 5
    return Task(
        lane=lane,
        task_id=row[0],
        claim_number=row[3],
        page_id=row[1],
        page_number=row[8],
        retry_count=row[5] + row[4],
        max_retries=row[6],
        suspect=row[7] == 1,
        source=source,
        file_path=row[9],
        chunk_id=chunk_id,
        text_hash=text_hash,
        text=text,
        heading_path=heading_path,
        symbols=symbols,
    )
