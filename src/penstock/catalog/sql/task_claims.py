"""Claiming tasks: a batch across documents, in one short transaction."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.catalog.outside_stores import OutsideStore
from penstock.catalog.rules.rollup import PROCESSING, WAITING
from penstock.catalog.sql.read_records import TASK_ROW, TASK_SOURCE_ROW, TaskRow, TaskSourceRow
from penstock.catalog.sql.rollup import Rollup
from penstock.catalog.sql.row_types import column
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import Phase, Task, TaskRequest, TaskSource
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
        tasks = TASK_ROW.decode_all(rows.all(f"candidates_{request.lane}", listed(ids)))
        if request.lane is Phase.VECTOR:
            tasks = _writable(rows, tasks)
            if not tasks:
                return []
        found = {task.task_id: task for task in tasks}
        documents = {task.document_id for task in tasks}
        rows.hold("documents", listed(documents))
        about = _sources(rows, documents)
        taken = [found[number] for number in ids if number in found]
        taken = [task for task in taken if about[task.document_id] is not None]
        dropped = [(at, number, EVICTED_AT_ONCE) for number, source in about.items() if source is None]
        rows.many(f"evict_{request.lane}", dropped)
        if taken:
            _take(rows, request, taken, at)
            return [_task(request.lane, task, about[task.document_id]) for task in taken]
    return []


def _writable(rows: Statements, tasks: list[TaskRow]) -> list[TaskRow]:
    """The tasks, except those with a text awaiting removal from an outside store."""
    texts = listed(task.content_id for task in tasks)
    awaited = set(column(rows.all("awaiting_removal", OutsideStore.VECTOR, texts)))
    return [task for task in tasks if task.content_id not in awaited]


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
    """Choose due retries first, then pending tasks. A crash suspect is claimed alone."""
    chosen: list[int] = []
    kind = (request.needs_ocr,) if request.lane is Phase.OCR else ()
    for number, suspect in rows.all(f"due_{request.lane}", at, request.limit, *kind):
        if suspect:
            # Other due tasks were seen and left: wake another worker for them.
            rows.notify()
            return chosen or [number]
        chosen.append(number)
    if len(chosen) < request.limit:
        waiting = rows.all(f"waiting_{request.lane}", request.limit - len(chosen), *kind)
        chosen += [number for number, _ in waiting]
    return chosen


def _take(rows: Statements, request: TaskRequest, taken: list[TaskRow], at: str) -> None:
    rollup = Rollup(rows, at, beginning=True)
    rollup.load(task.document_id for task in taken)
    rows.many(f"take_{request.lane}", [(request.worker_id, at, task.failed, task.task_id) for task in taken])
    for task in taken:
        if request.lane is Phase.OCR:
            rollup.page_moved(Phase.OCR, task.document_id, WAITING, PROCESSING)
        else:
            rollup.chunk_moved(request.lane, task.page_id, WAITING, PROCESSING)
    for document_id in {task.document_id for task in taken}:
        rollup.touch(document_id).worker_id = request.worker_id
    rollup.apply()


def _sources(rows: Statements, ids: set[int]) -> dict[int, TaskSource | None]:
    """The source of each document; None for dropped generations."""
    found = TASK_SOURCE_ROW.decode_all(rows.all("task_sources", listed(ids)))
    return {row.document_id: None if row.state == "dropped" else _source(row) for row in found}


def _source(row: TaskSourceRow) -> TaskSource:
    described = msgspec.json.decode(row.source_json) if row.source_json else {}
    return TaskSource(
        document_id=row.document_id,
        source_id=row.source_id,
        family_key=row.family_key,
        place=row.place,
        path=row.path,
        content_hash=row.content_hash,
        space=row.space,
        job_id=row.job_id,
        title=described.get("title", row.title),
        file_type=described.get("file_type", row.file_type),
        gate=row.gate,
    )


def _task(lane: Phase, row: TaskRow, source: TaskSource | None) -> Task:
    assert source is not None
    return Task(
        lane=lane,
        task_id=row.task_id,
        claim_number=row.claim_number,
        page_id=row.page_id,
        page_number=row.page_number,
        retry_count=row.retry_count + row.failed,
        max_retries=row.max_retries,
        suspect=row.suspect == 1,
        source=source,
        file_path=row.file_path,
        needs_ocr=row.needs_ocr == 1,
        chunk_id=row.chunk_id,
        content_id=row.content_id,
        text_hash=row.text_hash,
        text=row.text,
        heading_path=row.heading_path,
        symbols=row.symbols,
    )
