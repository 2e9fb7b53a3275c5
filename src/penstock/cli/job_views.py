"""Jobs and statistics in the words and JSON shapes of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import vocabulary
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.job import Job, WorkerReport
    from penstock.service.job_views import JobReport, JobView
    from penstock.service.requests import Receipt, Stats

_TARGETS = (
    "file_path folder_path project_root document_id new_path library_name function_name tenant_id_to_delete "
    "content"
).split()

_HANDLERS_VIEW = frozenset(["current", "total", "percent", "message", "current_file"])
"""Keys of the stored progress that the report replaces."""
_JSON_COLUMNS = ("payload_json", "progress_json", "result_json", "history_json", "followup_json", "metadata")


def spoken(status: str) -> str:
    """The command line's word for a status."""
    return vocabulary.speak(status, "cli")


def status_and_held(job: Job) -> str:
    word = spoken(job.status)
    if job.held is not None:
        return f"{word} ({job.held})"
    if job.status == "in_progress" and job.item_type in ("folder", "project"):
        from penstock.service.job_views import report_of

        report = report_of(job)
        if report is not None and report.stage == "indexing":
            return f"{word} ({report.percent_complete:g} %)"
    return f"{word} (waiting)" if job.waiting else word


def target(job: Job) -> str:
    """The path, function or text a job works on, in one line."""
    payload = job.shown_payload
    found = next((str(payload[field]) for field in _TARGETS if payload.get(field)), "")
    return " ".join(found.split()) if len(found) <= 200 else " ".join(found[:200].split()) + "…"


def job_as_json(job: Job, report: JobReport | None, now: datetime) -> dict[str, Any]:
    """All columns of a job: JSON texts decoded, the status in the command line's word, with a report."""
    from penstock.dependencies import dependencies_of
    from penstock.job import decoded_column
    from penstock.service.job_views import result_of

    columns = {name: getattr(job, name) for name in job.__struct_fields__}
    for name in _JSON_COLUMNS:
        text = columns.pop(name)
        if name == "payload_json":
            columns["payload"] = job.shown_payload
        else:
            columns[name.removesuffix("_json")] = decoded_column(job.queue_id, name, text) if text else None
    del columns["after_json"]
    waits = dependencies_of(job)
    columns |= {"after": list(waits.after), "on_dependency_failure": waits.on_failure}
    if report is not None:
        columns |= {
            "progress": _progress_as_json(columns["progress"] or {}, report),
            "result": result_of(job, report),
            "total_chunks": report.chunks_created,
        }
    times = {
        "running_time_ms": _milliseconds(job.started_at, None if job.ended else now),
        "execution_time_ms": _milliseconds(job.started_at, job.finished_at),
    }
    return {"job_id": columns.pop("queue_id")} | columns | {"status": spoken(job.status)} | times


def _progress_as_json(stored: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """The report, with what else the worker stored in the progress."""
    rest = {name: value for name, value in stored.items() if name not in _HANDLERS_VIEW}
    reported = {name: getattr(report, name) for name in report.__struct_fields__}
    return reported | {"percent_complete": report.percent_complete} | rest


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else round((end - start).total_seconds() * 1000)


def progress_text(report: JobReport, root: str | None) -> str | None:
    """Progress in one line, as ``800 of 2,169 files (36.9 %), 5,120 chunks, 2 failed; now deep/gate.txt``."""
    if report.stage == "waiting":
        return None
    if report.stage == "walking":
        parts = [f"walking: {how_many(report.files_total, 'file')} found"]
    elif report.files_processed is None:
        parts = [f"ended early with {how_many(report.files_total, 'file')} found"]
    else:
        share = f" ({report.percent_complete:g} %)" if report.files_total else ""
        parts = [f"{report.files_processed:,} of {how_many(report.files_total, 'file')}{share}"]
    if report.chunks_created:
        parts.append(how_many(report.chunks_created, "chunk"))
    parts += failed_text(report)
    current = report.current_file
    if current is not None and root is not None:
        current = current.removeprefix(root.rstrip("/") + "/")
    return ", ".join(parts) + (f"; now {current}" if current else "")


def failed_text(report: JobReport) -> list[str]:
    """Failed files as ``9 failed (1 inside another file)``; nothing if none failed."""
    failed, inside = report.failed + report.failed_inside, report.failed_inside
    where = f" ({inside:,} inside {'another file' if inside == 1 else 'other files'})" if inside else ""
    return [f"{failed:,} failed{where}"] if failed else []


def view_as_json(view: JobView) -> dict[str, Any]:
    details = view.details
    return job_as_json(details.job, view.report, view.now) | {
        "reason": details.reason,
        "remedy": details.remedy,
        "queue_position": details.queue_position,
        "queue_length": details.queue_length,
        "history": details.history,
    }


def receipt_as_json(receipt: Receipt) -> dict[str, Any]:
    return {name: getattr(receipt, name) for name in receipt.__struct_fields__} | {
        "status": spoken(receipt.status)
    }


def stats_as_json(stats: Stats) -> dict[str, Any]:
    def renamed(counts: dict[str, int]) -> dict[str, int]:
        return {spoken(status): number for status, number in counts.items()}

    return {name: getattr(stats, name) for name in stats.__struct_fields__} | {
        "by_status": renamed(stats.by_status),
        "by_item_type": {name: renamed(counts) for name, counts in stats.by_item_type.items()},
        "workers": [_worker_as_json(worker) for worker in stats.workers],
    }


def _worker_as_json(worker: WorkerReport) -> dict[str, Any]:
    columns = {name: getattr(worker, name) for name in worker.__struct_fields__ if name != "info_json"}
    return columns | {"info": worker.info}
