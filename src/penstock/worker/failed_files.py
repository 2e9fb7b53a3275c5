"""Ledger entries for files whose job failed with its process: killed, timed out or lost too often.

A handler that fails writes its own. Without these, ``why`` would not know the file, and the next walk would
read it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import LedgerEntry, LedgerKind, Place
from penstock.job import Job, Settlement, Status
from penstock.payloads import normal_path
from penstock.pipeline.budget import FileMark
from penstock.worker.shared_state import SharedState

REMEDY = "Look at the file: it may be damaged or hostile. `penstock queue retry ID` tries once more."


class Parsed(NamedTuple):
    """The file that a process was parsing when it ended, and the job it was for."""

    queue_id: str
    mark: FileMark


def parsed_by(slot: SharedState) -> Parsed | None:
    """From what a dead process left in its slot."""
    executing = slot.executing()
    run = slot.file_run(executing.number) if executing is not None else None
    if executing is None or run is None or run.mark is None or run.mark.member >= len(executing.members):
        return None
    return Parsed(executing.members[run.mark.member].queue_id, run.mark)


def record(
    catalog: Catalog | None, jobs: Sequence[Job], settlements: Sequence[Settlement], parsed: Parsed | None
) -> None:
    """Before they are settled: who dies in between does it again."""
    failed = [
        _entry(job, settlement, parsed.mark if parsed and parsed.queue_id == job.queue_id else None)
        for job, settlement in zip(jobs, settlements, strict=True)
        if settlement.status is Status.FAILED and job.item_type == "file" and job.op != "delete"
    ]
    if failed and catalog is not None:
        catalog.note(failed)


def _entry(job: Job, settlement: Settlement, mark: FileMark | None) -> LedgerEntry:
    return LedgerEntry(
        place=Place(job.tenant_id, job.collection, job.branch),
        path=normal_path(job.payload["file_path"]),
        kind=LedgerKind.FAILED,
        rule=settlement.error_code or "ERR_UNKNOWN",
        cause=(settlement.error_message or "")[:1000],
        remedy=REMEDY,
        job_id=job.queue_id,
        size=mark.size if mark is not None else None,
        mtime_ns=mark.mtime_ns if mark is not None else None,
        made_with=mark.made_with if mark is not None else None,
    )
