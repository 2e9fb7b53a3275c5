"""Failed files of an index job: the section after the summary, and the same as JSON."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from penstock.cli.output import emit, printable, table

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.job import Job

NAMED = 5


def read(session: Session, job: Job) -> list[Job]:
    """Read the first failed children of a job."""
    if not job.children_failed:
        return []
    return session.assembly.jobs.jobs(status="failed", parent_id=job.queue_id, limit=NAMED)


def counted(job: Job, counts: dict[str, Any]) -> list[str]:
    """Failures as parts of the summary's first line. ``counts``: of the walk."""
    parts = []
    if counts.get("failed_before"):
        parts.append(f"{counts['failed_before']:,} failed before and unchanged since")
    if job.children_failed:
        parts.append(f"{job.children_failed:,} failed")
    return parts


def print_section(job: Job, failures: list[Job]) -> None:
    if not failures:
        return
    root = str(job.payload.get("folder_path") or job.payload.get("project_root") or "/")
    rows = [(os.path.relpath(_path(child), root), _cause(child)) for child in failures]
    emit("\n" + table(["failed", "error"], rows))
    more = f" ({job.children_failed - len(rows):,} more)" if job.children_failed > len(rows) else ""
    emit(f"Full list{more}: penstock why {printable(root)}. Try again: penstock retry {job.queue_id}")


def as_json(failures: list[Job]) -> dict[str, Any]:
    return {
        "failures": [
            {"path": _path(child), "code": child.error_code, "message": child.error_message}
            for child in failures
        ]
    }


def _cause(job: Job) -> str:
    """The error message without the exception's name, which the code repeats."""
    name, _, message = (job.error_message or "").partition(": ")
    return f"{message if message and name.isidentifier() else job.error_message} ({job.error_code})"


def _path(job: Job) -> str:
    return str(job.payload.get("file_path", job.queue_id))
