"""``penstock index``: queue a path, and run the job here when no worker is running."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import index_failures, index_paths, index_summary
from penstock.cli.arguments import all_words
from penstock.cli.exit_codes import INTERRUPTED
from penstock.cli.index_summary import IndexOutcome, IndexRequest
from penstock.cli.job_progress import shown_live
from penstock.cli.job_views import receipt_as_json
from penstock.cli.output import emit, emit_json, wrapped
from penstock.cli.session import QUEUE_DISABLED, Session
from penstock.errors import LocalOnly
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.sync_client import Client
    from penstock.service.job_views import JobReport
    from penstock.service.requests import Receipt

CLAIMED_WITHIN_S = 3.0


@click.command()
@click.argument("paths", metavar="PATH|URL...", nargs=-1, required=True, type=click.Path())
@click.option("--collection", metavar="NAME", help="Collection for the documents.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.option("--branch", metavar="NAME", help="Branch of the documents.")
@click.option("--include", multiple=True, metavar="GLOB", help="Index only matching files; may be repeated.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out matching files; may be repeated.")
@click.option(
    "--include-code/--no-code",
    " /--no-include-code",
    "include_code",
    default=None,
    help="Index source code, or leave it out. Default: in a git repository or beside a project file.",
)
@click.option(
    "--archives/--no-archives",
    default=None,
    help="Open zip and tar archives as folders, or skip them. Default: PENSTOCK_ARCHIVES, else skip.",
)
@click.option(
    "--project/--no-project",
    default=None,
    help="Index PATH as a project, by its branch, or as any folder. Default: a project in a git work tree.",
)
@click.option(
    "--depth",
    type=click.IntRange(0),
    metavar="N",
    help="Maximum folder depth; of a web page, the links followed from it: 0 is the page alone. Default: 3.",
)
@click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="Follow links to this host, too.")
@click.option(
    "--max-pages",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Maximum number of web pages. Default: 1,000.",
)
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
@click.option(
    "--graph/--no-graph",
    default=None,
    help="Extract entities and relations, or remove them. Default: PENSTOCK_GRAPH, or as they are.",
)
@click.option(
    "--ocr/--no-ocr",
    default=None,
    help="Recognize text in pictures and scans, or leave them unread. Default: PENSTOCK_OCR, else recognize.",
)
@click.option("--force", is_flag=True, help="Index unchanged files again.")
@click.option("--checksum", is_flag=True, help="Compare file contents, not only size and time.")
@click.option("--retry-failed", is_flag=True, help="Read unchanged files again that failed before.")
@click.option(
    "--allow-external",
    is_flag=True,
    help="With --server: allow a path outside its roots, if its settings do.",
)
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
@click.option(
    "--serial",
    is_flag=True,
    help="Run after the serial jobs before it in the collection; in this command, with one process.",
)
@click.option("--dry-run", is_flag=True, help="Count the files, but index nothing.")
@click.pass_obj
def index(session: Session, /, paths: tuple[str, ...], **given: Any) -> None:
    """Index files, folders and web pages for search.

    When a worker is running, the job is queued for that worker. Otherwise this command does the work and
    shows a progress bar. Ctrl-C stops it; the same command continues.

    Several PATHs are one request each, in this order. If one is missing, nothing is queued.

    \b
    penstock index ./docs
    penstock index handbook notes/mill.md
    penstock index ~/src/mill --collection code
    penstock index https://docs.example.org/ --depth 2
    """
    if len(paths) > 1:
        done = "compared" if given["dry_run"] else "done"
        index_paths.index_each(
            session, paths, _options(given), lambda path: _index(session, path, given), done
        )
    else:
        _index(session, paths[0], given)


def _index(session: Session, path: str, given: dict[str, Any]) -> None:
    options = _options(given)
    _refuse_overlap(given["chunk_size"], given["chunk_overlap"])
    if given["depth"] == 0 and "://" not in path:
        raise click.UsageError("--depth 0 is for web pages: the depth of a folder is 1 or more.")
    if session.client is not None:
        _index_by_server(session, session.client, path, given)
        return
    if given["dry_run"]:
        _preview(session, path, options)
        return
    documents = session.assembly.documents
    follow(
        session,
        f"Indexing {path}",
        lambda: documents.index(path, **options),
        given,
        code=lambda: documents.why_code(path, **options),
        project=lambda: (
            session.place(path, tenant=given["tenant"], branch=given["branch"], project=given["project"]).name
        ),
    )


def follow(
    session: Session,
    title: str,
    submit: Callable[[], Receipt],
    given: dict[str, Any],
    *,
    code: Callable[[], str | None] = lambda: None,
    project: Callable[[], str | None] = lambda: None,
) -> None:
    """Submit a job and run it here, or wait for a worker, as the options say; then print its result.

    ``code``: tells why code is included although the request did not ask for it. ``project``: names the
    project and branch of the documents.
    """
    alive = session.assembly.worker_alive()
    disabled = session.waits_for_enabling(worker_alive=alive)
    may_run_here = given["wait"] is not False and not alive and not disabled
    if may_run_here:
        session.assembly.documents.refuse_another_model()
    receipt = submit()
    request = IndexRequest(_begun_before(session, receipt), code(), project())
    here = may_run_here and not _claimed_elsewhere(session, receipt.job_id)
    if not session.as_json and not session.quiet:
        watches = "here" if here else "there" if given["wait"] and not disabled else None
        _print_queued(receipt, request, alive=alive, watches=watches)
    if disabled and not session.as_json:
        session.hint(QUEUE_DISABLED)
    elif given["wait"] is False and not alive and not session.as_json:
        session.hint("No worker is running. Start one with: penstock worker")
    if disabled or (not here and not given["wait"]):
        if session.as_json:
            emit_json(receipt_as_json(receipt))
        return
    began = time.monotonic()
    with shown_live(session, receipt.job_id, title, here=here):
        if here:
            session.run_here(receipt.job_id, processes=1 if given["serial"] else given["processes"] or 2)
        else:
            session.assembly.wait(receipt.job_id)
    _print_result(session, receipt, request, time.monotonic() - began)


def _index_by_server(session: Session, client: Client, path: str, given: dict[str, Any]) -> None:
    """Queue a path of the server, and wait for the job if asked to."""
    from penstock import items

    if given["dry_run"]:
        raise LocalOnly("--dry-run does not work through a server")
    options = _options(given) | {"priority": items.PRIORITY_BY_DOOR["cli"]}
    began = time.monotonic()
    receipt = client.index(session.path(path), **options, allow_external=given["allow_external"])

    def code() -> str | None:
        decided = given["include_code"] is not None or given["project"]
        return None if decided else client.outcome(receipt.job_id).code_included_because

    follow_there(
        session,
        client,
        f"Indexing {path}",
        receipt,
        began,
        waits=bool(given["wait"]),
        code=code,
        project=lambda: _project_of(session, client, receipt),
    )


def _project_of(session: Session, client: Client, receipt: Receipt) -> str | None:
    """Name and branch of the project that a job of the server is of."""
    job = client.job(receipt.job_id)
    name = session.project_names.get(job.tenant_id)
    return None if name is None else f"{name} (branch {job.branch})"


def follow_there(
    session: Session,
    client: Client,
    title: str,
    receipt: Receipt,
    began: float,
    *,
    waits: bool,
    code: Callable[[], str | None] = lambda: None,
    project: Callable[[], str | None] = lambda: None,
) -> None:
    """Print what a server queued; with ``waits``, wait for the job and print its result."""
    alive = client.ready().workers > 0
    request = IndexRequest(_begun_before(session, receipt))
    if not session.as_json and not session.quiet:
        _print_queued(receipt, request, alive=alive, watches="there" if waits else None)
    if not alive and not session.as_json:
        session.hint("No worker is running. Start one with: penstock worker")
    if not waits:
        if session.as_json:
            emit_json(receipt_as_json(receipt))
        return
    with shown_live(session, receipt.job_id, title, here=False):
        client.wait(receipt.job_id)
    request = request._replace(code=code(), project=project())
    _print_result(session, receipt, request, time.monotonic() - began)


def _begun_before(session: Session, receipt: Receipt) -> JobReport | None:
    """Report on the job as this request found it; None for a new job, or one that had not begun."""
    from penstock.service.job_views import report_of

    if not receipt.dedupe_hit:
        return None
    job = session.services.job(receipt.job_id)
    return report_of(job) if job.started_at is not None or job.run > 1 else None


def _refuse_overlap(size: int | None, overlap: int | None) -> None:
    if overlap is not None:
        from penstock.payloads import USUAL_CHUNK

        if 2 * overlap > (size or USUAL_CHUNK):
            raise click.UsageError(
                f"--chunk-overlap {overlap} is more than half of --chunk-size {size or USUAL_CHUNK}."
            )


def _options(given: dict[str, Any]) -> dict[str, Any]:
    plain = (
        "collection branch include_code archives depth recursive chunk_size chunk_overlap graph ocr force "
    )
    plain += "max_pages"
    options = {
        name: given[name] for name in [*plain.split(), "checksum", "retry_failed", "allow_empty", "project"]
    }
    return options | {
        "tenant_id": given["tenant"],
        "include": all_words(given["include"]),
        "exclude": all_words(given["exclude"]),
        "hosts": all_words(given["hosts"]),
        "priority": None,
        "serial": given["serial"] or None,
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


def _print_queued(receipt: Receipt, request: IndexRequest, *, alive: bool, watches: str | None) -> None:
    """Print what became of the request. ``watches``: ``here`` or ``there``, where this command waits."""
    message = "Job queued!"
    if receipt.dedupe_hit and watches == "there":
        message = "Duplicate detected - watching existing job"
    elif receipt.dedupe_hit and watches == "here":
        message = _resume_message(request)
    elif receipt.dedupe_hit:
        message = receipt.message
    click.echo(message, err=True)
    click.echo(f"Job ID: {receipt.job_id}", err=True)
    if receipt.status == "pending" and receipt.queue_position is not None and receipt.queue_length:
        click.echo(f"Queue Position: {receipt.queue_position + 1} of {receipt.queue_length}", err=True)
    for note in receipt.notes:
        click.echo(wrapped(f"Note: {note}"), err=True)
    if alive and watches is None:
        click.echo(f"A worker is running. Follow it with: penstock jobs {receipt.job_id} --watch", err=True)


def _resume_message(request: IndexRequest) -> str:
    before = request.before
    if before is None:
        return "The same job was queued before; it runs now."
    if not before.files_total or before.files_processed is None:
        return "Resuming the interrupted job."
    return f"Resuming: {before.files_processed:,} of {how_many(before.files_total, 'file')} done before."


def _print_result(session: Session, receipt: Receipt, request: IndexRequest, seconds: float) -> None:
    job, found = session.services.job(receipt.job_id), session.services.outcome(receipt.job_id)
    failures = index_failures.divided(found.failures, job)
    outcome = IndexOutcome(failures, found.inside, found.recognized)
    if session.as_json:
        answer = receipt_as_json(receipt) | index_summary.as_json(job, seconds, request, outcome)
        answer["recognized"] = found.recognized
        emit_json(answer | index_failures.as_json(failures))
    elif not session.quiet or job.status != "done":
        emit(index_summary.text(job, seconds, request, outcome))
        index_failures.print_section(job, failures)
    if not job.ended:
        if not session.as_json:
            emit(wrapped("Stopped. The same command continues; `penstock cancel ID` ends the job."))
        raise SystemExit(INTERRUPTED)
    if job.status != "done" or failures.of_former_runs(job):
        raise SystemExit(index_failures.exit_code(job, failures))


def _preview(session: Session, path: str, options: dict[str, Any]) -> None:
    preview = session.assembly.documents.preview(path, **options)
    if session.as_json:
        emit_json(preview)
        return
    code = session.assembly.documents.why_code(path, **options)
    if code:
        emit(index_summary.code_text(code))
    emit(
        f"{how_many(preview.files, 'file')} ({how_many(preview.bytes, 'byte')}) would be compared: "
        f"{preview.new:,} new, "
        f"{preview.changed:,} changed, {preview.unchanged:,} unchanged"
        + (f", {preview.failed_before:,} failed before." if preview.failed_before else ".")
    )
    if preview.skipped:
        emit(wrapped(index_summary.left_out_text(preview.skipped, None) + "."))
