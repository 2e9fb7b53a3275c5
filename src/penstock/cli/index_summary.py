"""Summary of an index job: what was done, what was left out, and the same as JSON.

The failed files follow the summary in a section of their own; see ``index_failures``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.output import printable
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.job import Job


def _counts(job: Job) -> dict[str, Any]:
    """Counts of the result, or else of the last progress, which may be a second old."""
    final = {name: value for name, value in (job.result or {}).items() if isinstance(value, int)}
    return final or (job.progress or {}).get("counts", {})


def text(job: Job, seconds: float) -> str:
    counts = _counts(job)
    if job.status == "cancelled":
        # How many of the files sent were still indexed is not counted.
        return f"Cancelled after {seconds:.1f} s. Indexed files stay; the same command does the rest."
    if job.item_type == "file":
        done = job.result or {}
        summary = done.get("outcome", job.status)
        if done.get("chunks"):
            summary += (
                f": {how_many(done['chunks'], 'chunk')}, {done.get('embedded', done['chunks']):,} embedded"
            )
    else:
        sent = sum(counts.get(name, 0) for name in ("added", "changed"))
        summary = how_many(max(sent - job.children_open - job.children_failed, 0), "file") + " indexed"
        parts = [
            f"{counts[name]:,} {name}"
            for name in ("unchanged", "moved", "vanished", "skipped")
            if counts.get(name)
        ]
        if counts.get("failed_before"):
            parts.append(f"{counts['failed_before']:,} cannot be read (unchanged)")
        summary = ", ".join([summary, *parts])
        if job.children_failed:
            summary += f", {job.children_failed:,} failed"
    if job.status == "failed" and not job.children_failed:
        summary = f"failed: {printable(job.error_message)} ({job.error_code})"
    return f"{summary[:1].upper()}{summary[1:]} in {seconds:.1f} s."


def as_json(job: Job, seconds: float) -> dict[str, Any]:
    """The summary as JSON, without the failed files."""
    return {
        "job_id": job.queue_id,
        "status": str(job.status),
        "seconds": round(seconds, 3),
        "counts": _counts(job) | {"failed": job.children_failed},
        "result": job.result,
        "error": {"code": job.error_code, "message": job.error_message} if job.error_code else None,
    }
