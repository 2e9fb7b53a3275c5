"""Jobs and statistics in the words and JSON shapes of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import vocabulary

if TYPE_CHECKING:
    from penstock.job import Job, WorkerReport
    from penstock.service.responses import Details, Receipt, Stats

_TARGETS = (
    "file_path folder_path project_root document_id new_path library_name function_name tenant_id_to_delete "
    "content"
).split()

_JSON_COLUMNS = ("payload_json", "progress_json", "result_json", "history_json", "followup_json", "metadata")


def spoken(status: str) -> str:
    """The command line's word for a status."""
    return vocabulary.speak(status, "cli")


def status_and_held(job: Job) -> str:
    word = spoken(job.status)
    if job.held is not None:
        return f"{word} ({job.held})"
    return f"{word} (waiting)" if job.waiting else word


def target(job: Job) -> str:
    """The path, function or text a job works on, in one line."""
    payload = job.payload
    found = next((str(payload[field]) for field in _TARGETS if payload.get(field)), "")
    return " ".join(found.split()) if len(found) <= 200 else " ".join(found[:200].split()) + "…"


def job_as_json(job: Job) -> dict[str, Any]:
    """All columns of a job: JSON texts decoded, the status in the command line's word."""
    import msgspec

    columns = {name: getattr(job, name) for name in job.__struct_fields__}
    for name in _JSON_COLUMNS:
        text = columns.pop(name)
        columns[name.removesuffix("_json")] = msgspec.json.decode(text) if text else None
    return {"job_id": columns.pop("queue_id")} | columns | {"status": spoken(job.status)}


def details_as_json(details: Details) -> dict[str, Any]:
    return job_as_json(details.job) | {
        "reason": details.reason,
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
