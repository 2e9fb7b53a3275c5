"""``penstock index``: queue a path, and do the work here when no worker is running."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.arguments import all_words
from penstock.cli.exit_codes import INTERRUPTED, REFUSED
from penstock.cli.job_progress import JobProgress, shown
from penstock.cli.output import emit, emit_json, printable, table
from penstock.cli.session import Session, json_option
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.job import Job
    from penstock.service.responses import Receipt

NAMED = 5
CLAIMED_WITHIN_S = 3.0


@click.command()
@click.argument("path", type=click.Path())
@click.option("--collection", metavar="NAME", help="Where the documents go.")
@click.option("--tenant", metavar="NAME", help="Whose they are.")
@click.option("--branch", metavar="NAME", help="Which branch they belong to.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files that match; repeat for more.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out what matches; repeat for more.")
@click.option("--include-code/--no-code", default=None, help="Source code as well, or not.")
@click.option("--project", is_flag=True, help="A source tree: code counts, and its repository is known.")
@click.option("--depth", type=click.IntRange(1), metavar="N", help="Folders deep, at most.")
@click.option("--recursive/--no-recursive", default=True, help="Folders below it as well, or not.")
@click.option("--chunk-size", type=int, metavar="TOKENS", help="Tokens a chunk, about: 16 to 8,192.")
@click.option(
    "--chunk-overlap", type=int, metavar="TOKENS", help="Tokens repeated at a cut: at most half a chunk."
)
@click.option("--force", is_flag=True, help="Do everything anew, even what is unchanged.")
@click.option("--checksum", is_flag=True, help="Compare contents where size and time say unchanged.")
@click.option(
    "--allow-external", is_flag=True, help="Accepted for paths outside a project; always allowed here."
)
@click.option("--allow-empty", is_flag=True, help="A folder with nothing to index is fine.")
@click.option("--wait/--no-wait", default=None, help="Wait for the end, or only queue it.")
@click.option("--processes", type=click.IntRange(1, 256), metavar="N", help="Processes, when it works here.")
@click.option("--serial", is_flag=True, help="One process only, when it works here.")
@click.option("--dry-run", is_flag=True, help="Only say what would be looked at.")
@json_option
@click.pass_obj
def index(session: Session, /, path: str, **given: Any) -> None:
    """Make a file, or everything below a folder, searchable.

    With a worker running the job is queued for it. Without one the work is done here, with a progress bar;
    Ctrl-C stops it, and the same command goes on where it was.

    \b
    penstock index ./docs
    penstock index ~/src/mill --project --collection code
    """
    options = _options(given)
    if given["dry_run"]:
        _preview(session, path, options)
        return
    alive = session.assembly.worker_alive()
    if not alive and given["wait"] is not False:
        session.assembly.documents.refuse_another_model()
    receipt = session.assembly.documents.index(path, **options)
    here = given["wait"] is not False and not alive and not _claimed_elsewhere(session, receipt.job_id)
    if not session.as_json:
        _tell_queued(receipt, alive)
    if not here and not given["wait"]:
        if session.as_json:
            emit_json({"job_id": receipt.job_id, "status": "pending", "dedupe_hit": receipt.dedupe_hit})
        return
    began = time.monotonic()
    follower = JobProgress(session.assembly.further_jobs(), receipt.job_id, session.assembly.documents)
    with shown(follower, f"Indexing {path}"):
        if here:
            session.run_here(receipt.job_id, processes=1 if given["serial"] else given["processes"] or 2)
        else:
            session.assembly.wait(receipt.job_id)
    _tell_ended(session, receipt.job_id, time.monotonic() - began)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    plain = "collection branch include_code depth recursive chunk_size chunk_overlap force checksum"
    options = {name: given[name] for name in [*plain.split(), "allow_empty", "project"]}
    return options | {
        "tenant_id": given["tenant"],
        "include": all_words(given["include"]),
        "exclude": all_words(given["exclude"]),
        "priority": None,
    }


def _claimed_elsewhere(session: Session, job_id: str) -> bool:
    """Whether a worker on another host takes it. Stores in files have none: their workers are known here."""
    if session.settings.store.is_file:
        return False
    if session.assembly.jobs.job(job_id).status != "pending":
        # From an earlier request; whoever took it may be dead, and nobody would notice. Two may work on it.
        return False
    until = time.monotonic() + CLAIMED_WITHIN_S
    while session.assembly.jobs.job(job_id).status == "pending" and (left := until - time.monotonic()) > 0:
        session.assembly.jobs.queue.wait(min(left, 0.2))
    return session.assembly.jobs.job(job_id).status != "pending"


def _tell_queued(receipt: Receipt, alive: bool) -> None:
    click.echo(
        "Duplicate detected - watching existing job" if receipt.dedupe_hit else "Job queued!", err=True
    )
    click.echo(f"Job ID: {receipt.job_id}", err=True)
    if receipt.queue_position is not None and receipt.queue_length:
        click.echo(f"Queue Position: {receipt.queue_position + 1} of {receipt.queue_length}", err=True)
    if alive:
        click.echo("A worker is running. Follow it with: penstock jobs --watch", err=True)


def _tell_ended(session: Session, job_id: str, seconds: float) -> None:
    job = session.assembly.jobs.job(job_id)
    failures = (
        session.assembly.jobs.jobs(status="failed", parent_id=job_id, limit=NAMED)
        if job.children_failed
        else []
    )
    if session.as_json:
        emit_json(_as_json(job, failures, seconds))
    else:
        emit(_summary(job, seconds))
        if failures:
            root = str(job.payload.get("folder_path") or job.payload.get("project_root") or "/")
            rows = [(os.path.relpath(_path(child), root), _cause(child)) for child in failures]
            emit("\n" + table(["failed", "because"], rows))
            more = f" ({job.children_failed - len(rows):,} more)" if job.children_failed > len(rows) else ""
            emit(f"All of them{more}: penstock why {printable(root)}. Try again: penstock retry {job_id}")
    if not job.ended:
        if not session.as_json:
            emit("Stopped. The same command goes on where it was; `penstock cancel ID` gives it up.")
        raise SystemExit(INTERRUPTED)
    if job.status != "done":
        raise SystemExit(REFUSED)


def _counts(job: Job) -> dict[str, Any]:
    """From the result, where there is one: progress is written once a second and may be a step behind."""
    said = {name: value for name, value in (job.result or {}).items() if isinstance(value, int)}
    return said or (job.progress or {}).get("counts", {})


def _summary(job: Job, seconds: float) -> str:
    counts = _counts(job)
    if job.status == "cancelled":
        # Nobody counts how many of those sent were still done.
        return f"Cancelled after {seconds:.1f} s. What was indexed stays; the same command does the rest."
    if job.item_type == "file":
        done = job.result or {}
        told = done.get("outcome", job.status)
        if done.get("chunks"):
            told += (
                f": {how_many(done['chunks'], 'chunk')}, {done.get('embedded', done['chunks']):,} embedded"
            )
    else:
        sent = sum(counts.get(name, 0) for name in ("added", "changed"))
        told = how_many(max(sent - job.children_open - job.children_failed, 0), "file") + " indexed"
        parts = [
            f"{counts[name]:,} {name}"
            for name in ("unchanged", "moved", "vanished", "skipped")
            if counts.get(name)
        ]
        if counts.get("failed_before"):
            parts.append(f"{counts['failed_before']:,} failed before and unchanged since")
        told = ", ".join([told, *parts])
        if job.children_failed:
            told += f", {job.children_failed:,} failed"
    if job.status == "failed" and not job.children_failed:
        told = f"failed: {printable(job.error_message)} ({job.error_code})"
    return f"{told[:1].upper()}{told[1:]} in {seconds:.1f} s."


def _as_json(job: Job, failures: list[Job], seconds: float) -> dict[str, Any]:
    return {
        "job_id": job.queue_id,
        "status": str(job.status),
        "seconds": round(seconds, 3),
        "counts": _counts(job) | {"failed": job.children_failed},
        "result": job.result,
        "error": {"code": job.error_code, "message": job.error_message} if job.error_code else None,
        "failures": [
            {"path": _path(child), "code": child.error_code, "message": child.error_message}
            for child in failures
        ],
    }


def _cause(job: Job) -> str:
    """Without the name of the exception: the code says the same."""
    kind, _, said = (job.error_message or "").partition(": ")
    return f"{said if said and kind.isidentifier() else job.error_message} ({job.error_code})"


def _path(job: Job) -> str:
    return str(job.payload.get("file_path", job.queue_id))


def _preview(session: Session, path: str, options: dict[str, Any]) -> None:
    preview = session.assembly.documents.preview(path, **options)
    if session.as_json:
        emit_json(preview)
        return
    emit(
        f"{how_many(preview.files, 'file')} ({how_many(preview.bytes, 'byte')}) would be looked at: "
        f"{preview.new:,} new, "
        f"{preview.changed:,} changed, {preview.unchanged:,} unchanged."
    )
    if preview.skipped:
        emit(table(["left out", "files or folders"], sorted(preview.skipped.items())))
