"""``penstock index``: queue a path, and run the job here when no worker is running."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.arguments import all_words
from penstock.cli.exit_codes import INTERRUPTED, REFUSED
from penstock.cli.job_progress import JobProgress, shown_live
from penstock.cli.output import emit, emit_json, printable, table
from penstock.cli.session import QUEUE_DISABLED, Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.job import Job
    from penstock.service.responses import Receipt

NAMED = 5
CLAIMED_WITHIN_S = 3.0


@click.command()
@click.argument("path", type=click.Path())
@click.option("--collection", metavar="NAME", help="Collection for the documents.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.option("--branch", metavar="NAME", help="Branch of the documents.")
@click.option("--include", multiple=True, metavar="GLOB", help="Index only matching files; may be repeated.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out matching files; may be repeated.")
@click.option("--include-code/--no-code", default=None, help="Index source code, or leave it out.")
@click.option("--project", is_flag=True, help="Treat PATH as a source tree: code is included.")
@click.option("--depth", type=click.IntRange(1), metavar="N", help="Maximum folder depth.")
@click.option("--recursive/--no-recursive", default=True, help="Include subfolders, or not.")
@click.option(
    "--chunk-size",
    type=click.IntRange(16, 8192),
    metavar="TOKENS",
    help="Chunk size in tokens, about: 16 to 8,192.",
)
@click.option(
    "--chunk-overlap",
    type=click.IntRange(0),
    metavar="TOKENS",
    help="Tokens repeated at the start of a chunk: at most half of --chunk-size.",
)
@click.option("--force", is_flag=True, help="Index unchanged files again.")
@click.option("--checksum", is_flag=True, help="Compare file contents, not only size and time.")
@click.option("--allow-external", is_flag=True, help="No effect: paths outside a project are always allowed.")
@click.option("--allow-empty", is_flag=True, help="Succeed when the folder has no file to index.")
@click.option(
    "--wait/--no-wait", default=None, help="Wait until the job has ended, or return once it is queued."
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Number of processes when the job runs in this command.",
)
@click.option("--serial", is_flag=True, help="Use one process when the job runs in this command.")
@click.option("--dry-run", is_flag=True, help="Count the files, but index nothing.")
@click.pass_obj
def index(session: Session, /, path: str, **given: Any) -> None:
    """Index a file or a folder for search.

    When a worker is running, the job is queued for that worker. Otherwise this command does the work and
    shows a progress bar. Ctrl-C stops it; the same command continues.

    \b
    penstock index ./docs
    penstock index ~/src/mill --project --collection code
    """
    options = _options(given)
    _refuse_overlap(given["chunk_size"], given["chunk_overlap"])
    if given["dry_run"]:
        _preview(session, path, options)
        return
    alive = session.assembly.worker_alive()
    disabled = session.waits_for_enabling(worker_alive=alive)
    may_run_here = given["wait"] is not False and not alive and not disabled
    if may_run_here:
        session.assembly.documents.refuse_another_model()
    receipt = session.assembly.documents.index(path, **options)
    here = may_run_here and not _claimed_elsewhere(session, receipt.job_id)
    if not session.as_json:
        _print_queued(receipt, alive)
        if disabled:
            click.echo(QUEUE_DISABLED, err=True)
    if disabled or (not here and not given["wait"]):
        if session.as_json:
            emit_json({"job_id": receipt.job_id, "status": "pending", "dedupe_hit": receipt.dedupe_hit})
        return
    began = time.monotonic()
    follower = JobProgress(session.assembly.further_jobs(), receipt.job_id, session.assembly.documents)
    with shown_live(follower, f"Indexing {path}"):
        if here:
            session.run_here(receipt.job_id, processes=1 if given["serial"] else given["processes"] or 2)
        else:
            session.assembly.wait(receipt.job_id)
    _print_result(session, receipt.job_id, time.monotonic() - began)


def _refuse_overlap(size: int | None, overlap: int | None) -> None:
    if overlap is not None:
        from penstock.payloads import USUAL_CHUNK

        if 2 * overlap > (size or USUAL_CHUNK):
            raise click.UsageError(
                f"--chunk-overlap {overlap} is more than half of --chunk-size {size or USUAL_CHUNK}."
            )


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
    """Wait a moment for a worker on another host to claim the job; stores in files have none."""
    if session.settings.store.is_file:
        return False
    if session.assembly.jobs.job(job_id).status != "pending":
        # From an earlier request. Its worker may be dead without a trace; it is safe for two to work on it.
        return False
    until = time.monotonic() + CLAIMED_WITHIN_S
    while session.assembly.jobs.job(job_id).status == "pending" and (left := until - time.monotonic()) > 0:
        session.assembly.jobs.queue.wait(min(left, 0.2))
    return session.assembly.jobs.job(job_id).status != "pending"


def _print_queued(receipt: Receipt, alive: bool) -> None:
    click.echo(
        "Duplicate detected - watching existing job" if receipt.dedupe_hit else "Job queued!", err=True
    )
    click.echo(f"Job ID: {receipt.job_id}", err=True)
    if receipt.queue_position is not None and receipt.queue_length:
        click.echo(f"Queue Position: {receipt.queue_position + 1} of {receipt.queue_length}", err=True)
    if alive:
        click.echo("A worker is running. Follow it with: penstock jobs --watch", err=True)


def _print_result(session: Session, job_id: str, seconds: float) -> None:
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
            emit("\n" + table(["failed", "error"], rows))
            more = f" ({job.children_failed - len(rows):,} more)" if job.children_failed > len(rows) else ""
            emit(f"Full list{more}: penstock why {printable(root)}. Try again: penstock retry {job_id}")
    if not job.ended:
        if not session.as_json:
            emit("Stopped. The same command continues; `penstock cancel ID` ends the job.")
        raise SystemExit(INTERRUPTED)
    if job.status != "done":
        raise SystemExit(REFUSED)


def _counts(job: Job) -> dict[str, Any]:
    """Counts of the result, or else of the last progress, which may be a second old."""
    final = {name: value for name, value in (job.result or {}).items() if isinstance(value, int)}
    return final or (job.progress or {}).get("counts", {})


def _summary(job: Job, seconds: float) -> str:
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
            parts.append(f"{counts['failed_before']:,} failed before and unchanged since")
        summary = ", ".join([summary, *parts])
        if job.children_failed:
            summary += f", {job.children_failed:,} failed"
    if job.status == "failed" and not job.children_failed:
        summary = f"failed: {printable(job.error_message)} ({job.error_code})"
    return f"{summary[:1].upper()}{summary[1:]} in {seconds:.1f} s."


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
    """The error message without the exception's name, which the code repeats."""
    name, _, message = (job.error_message or "").partition(": ")
    return f"{message if message and name.isidentifier() else job.error_message} ({job.error_code})"


def _path(job: Job) -> str:
    return str(job.payload.get("file_path", job.queue_id))


def _preview(session: Session, path: str, options: dict[str, Any]) -> None:
    preview = session.assembly.documents.preview(path, **options)
    if session.as_json:
        emit_json(preview)
        return
    emit(
        f"{how_many(preview.files, 'file')} ({how_many(preview.bytes, 'byte')}) would be compared: "
        f"{preview.new:,} new, "
        f"{preview.changed:,} changed, {preview.unchanged:,} unchanged."
    )
    if preview.skipped:
        emit(table(["left out", "files or folders"], sorted(preview.skipped.items())))
