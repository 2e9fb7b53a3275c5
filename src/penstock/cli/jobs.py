"""``penstock status``, ``jobs``, ``cancel``, ``retry`` and ``queue``: jobs of every type, and the queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from penstock import clock
from penstock.cli import redis
from penstock.cli.exit_codes import REFUSED, exit_code
from penstock.cli.options import add_path, add_text, agreed, all_words, duration, read_payload
from penstock.cli.output import age, emit, emit_error, emit_json, fields, printable, space_left, span, table
from penstock.cli.progress import (
    job_as_json,
    progress_text,
    receipt_as_json,
    spoken,
    stats_as_json,
    status_and_held,
    target,
    view_as_json,
)
from penstock.cli.session import Command, CommandGroup, RenamedOption, Session
from penstock.errors import PenstockError
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.queue.job import Job, WorkerReport
    from penstock.service.documents import Overview
    from penstock.service.job_views import JobReport, JobView
    from penstock.service.jobs import JobFilter
    from penstock.service.requests import Receipt, Stats, Submission


def filter_options(command: Command) -> Command:
    """Add the options that select the jobs of a list."""
    for option in (
        click.option(
            "--after", metavar="ID", help="List jobs after this id, the last one of the previous page."
        ),
        click.option(
            "-n",
            "--limit",
            type=click.IntRange(1, 999),
            default=20,
            show_default=True,
            metavar="N",
            help="Maximum number of jobs.",
        ),
        click.option(
            "--item-type",
            cls=RenamedOption,
            former=("--type",),
            metavar="TYPE",
            help="List only this item type.",
        ),
        click.option("--collection", metavar="NAME", help="List only this collection."),
        click.option("--tenant", metavar="NAME", help="List only this tenant."),
        click.option(
            "--status",
            multiple=True,
            metavar="STATUS",
            help="List only this status; may be repeated or joined by commas.",
        ),
    ):
        command = option(command)
    return command


@click.command("list")
@filter_options
@click.pass_obj
def list_jobs(session: Session, /, **given: Any) -> None:
    """List jobs, newest first, with the child jobs they expanded into."""
    _print_page(session, given)


def _print_page(session: Session, given: Mapping[str, Any], *, top_level: bool | None = None) -> None:
    """Print the jobs that the filters select, and where the next page starts."""
    limit = given["limit"]
    filters: JobFilter = {
        "status": all_words(given["status"]) or None,
        "tenant_id": given["tenant"],
        "collection": given["collection"],
        "item_type": given["item_type"],
        "after": _after(session, given["after"]),
        "limit": limit + 1,
        "top_level": top_level,
    }
    if session.as_json:
        listing = session.readers.listing(**filters)
        found = [job_as_json(job, listing.reports.get(job.queue_id), listing.now) for job in listing.jobs]
        emit_json({"jobs": found[:limit], "next": found[limit - 1]["job_id"] if found[limit:] else None})
        return
    jobs = session.readers.jobs(**filters)
    page = jobs[:limit]
    following = page[-1].queue_id if len(jobs) > limit else None
    emit(_listed(page, session) if page else "No jobs match.")
    if following:
        session.hint(f"More jobs follow: add --after {following}")
    if top_level and "failed" in all_words(given["status"]):
        session.hint("Files that failed in a folder are child jobs: add --children")


def _after(session: Session, job_id: str | None) -> str | None:
    """The id after which a list continues: of any job that is there, or one that Penstock gave out.

    The last job of a page may have been purged since. Of any other text, the list would begin somewhere.
    """
    if job_id is None or clock.is_new_id(job_id):
        return job_id
    return session.services.job(job_id).queue_id


def _listed(page: list[Job], session: Session) -> str:
    usual = (session.settings.tenant_id, session.settings.collection)
    # With one tenant and collection, a column for them would only take space.
    others = any((job.tenant_id, job.collection) != usual for job in page)
    failed = any(job.status == "failed" for job in page)
    optional = (["error"] if failed else [], ["tenant"] if others else [])
    header = ["job", "status", *optional[0], "added", *optional[1], "what"]
    rows = [
        (
            job.queue_id,
            status_and_held(job),
            *([job.error_code if job.status == "failed" else ""] if failed else []),
            age(job.created_at),
            *([f"{session.tenant_name(job.tenant_id)}/{job.collection}"] if others else []),
        )
        for job in page
    ]
    room = space_left(header[:-1], rows)
    return table(header, [(*row, _what(job, room)) for row, job in zip(rows, page, strict=True)])


def _what(job: Job, room: int) -> str:
    """Type, operation and target of a job; without room for all, the end of its path, or its text."""
    full, short = f"{job.item_type} {job.op} {target(job)}", target(job)
    if len(full) <= room or not short:
        return full
    return short if len(short) <= room or not short.startswith("/") else f"…{short[1 - room :]}"


@click.command()
@click.argument("job_id", metavar="ID")
@click.pass_obj
def show(session: Session, job_id: str) -> None:
    """Show one job, why it is waiting, and its history.

    ID is a job id or a unique prefix of one.
    """
    _print_job(session, session.readers.view(job_id))


def _print_job(session: Session, view: JobView) -> None:
    """Print everything known of a job."""
    if session.as_json:
        emit_json(view_as_json(view))
        return
    emit(fields(_facts(session, view)))
    history = [(age(entry.at), entry.what, entry.worker_id, entry.note) for entry in view.details.history]
    emit("\n" + table(["when", "what", "worker", "note"], history))


def _facts(session: Session, view: JobView) -> Iterator[tuple[str, object]]:
    details, job = view.details, view.details.job
    yield "Job", job.queue_id
    yield "Status", status_and_held(job)
    yield "Reason", details.reason
    # A retried job keeps the error of its last attempt until it ends.
    of_error = "Error" if job.ended else "Last error"
    yield of_error, f"{job.error_code}: {job.error_message}" if job.error_code else None
    yield "Remedy", details.remedy
    yield "What", f"{job.item_type} {job.op} {target(job)}".strip()
    owner = "Project" if job.tenant_id in session.project_names else "Tenant"
    name = session.tenant_name(job.tenant_id)
    yield owner, f"{name}, collection {job.collection}, branch {job.branch}"
    yield "Priority", job.priority
    if details.queue_position is not None:
        yield "Position", f"{details.queue_position + 1:,} of {details.queue_length:,}"
    yield "Run", f"{job.run}, retries {job.retry_count} of {job.max_retries}, timeout {span(job.timeout_s)}"
    yield "Not before", f"{job.run_at:%Y-%m-%d %H:%M:%S} UTC ({age(job.run_at)})" if job.run_at else None
    if job.lease_until is not None:
        yield "Worker", f"{job.worker_id}, lease ends {age(job.lease_until)}"
    yield "Lock", job.lock_key and f"{job.lock_key}{', held by this job' if job.lock_held else ''}"
    yield "Limit", job.limit_key
    from penstock.queue.job import kept_until
    from penstock.queue.transitions import dependencies_of

    until = kept_until(job)
    yield "Result until", until and f"{until:%Y-%m-%d %H:%M:%S} UTC ({age(until)})"

    yield "After", ", ".join(dependencies_of(job).after) or None
    yield "Parent", job.parent_id
    if job.children_open or job.children_failed:
        children = f"{job.children_open:,} open, {job.children_failed:,} failed"
        yield "Children" if job.item_type != "file" else "Inside", children
    yield from _progress_and_result(job, view.report)
    yield "Follow-up", "submitted again while it ran; one more run follows" if job.followup_json else None
    yield "Metadata", _own_metadata(job)
    yield "Payload", _shortened(job.payload_json)


def _progress_and_result(job: Job, report: JobReport | None) -> Iterator[tuple[str, object]]:
    # Imported here: the options of ``index`` are many, and `penstock status` has no use for them.
    from penstock.cli.index import all_left_out, reported

    if report is None or job.item_type not in ("folder", "project"):
        yield "Progress", job.progress_json if job.progress else None
        yield "Result", job.result_json
        return
    payload = job.shown_payload
    yield "Progress", progress_text(report, payload.get("folder_path") or payload.get("project_root"))
    if job.ended:
        yield "Result", reported(job, report)
    yield "Left out", all_left_out(job)


def _own_metadata(job: Job) -> str | None:
    """Metadata of the caller, without the time of the request."""
    import msgspec

    from penstock.queue.job import decoded_object

    metadata = decoded_object(job.queue_id, "metadata", job.metadata)
    given = {key: value for key, value in metadata.items() if key != "asked_at"}
    return msgspec.json.encode(given).decode() if given else None


def _shortened(text: str, longest: int = 400) -> str:
    return (
        text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters; --json prints all)"
    )


@click.command()
@click.pass_obj
def stats(session: Session) -> None:
    """Show job counts by status, pauses and workers."""
    found = session.readers.stats()
    if session.as_json:
        emit_json(stats_as_json(found))
        return
    _print_stats(found)


def _print_stats(found: Stats) -> None:
    statuses = list(found.by_status)
    rows = [
        [name, *(counts.get(status, "") for status in statuses)]
        for name, counts in found.by_item_type.items()
    ]
    rows.append(["total", *found.by_status.values()])
    emit(table(["", *(spoken(status) for status in statuses)], rows))
    facts = [fact for fact in _circumstances(found) if fact[1]]
    if facts:
        emit("\n" + fields(facts))


def _circumstances(found: Stats) -> Iterator[tuple[str, object]]:
    if not found.exact:
        yield "Counts", "numbers above 1,000 are estimates"
    held = [f"{number:,} by {reason}" for reason, number in found.by_held.items() if number]
    yield "Held", ", ".join(held)
    yield "Oldest pending", age(found.oldest_pending_at)
    paused = [f"tenant {scope.tenant_id}, collection {scope.collection}" for scope in found.paused]
    yield "Paused", "; ".join(paused)
    for worker in found.workers:
        yield "Worker", _worker(worker)
        for service, state in worker.info.get("services", {}).items():
            yield "Service", f"{service} is {_BREAKER.get(state, state)} ({worker.worker_id})"
    for warning in found.warnings:
        yield "Warning", warning


_DID = {
    "processes": ("process", "processes"),
    "executed": ("job run", "jobs run"),
    "refused": ("late result refused", "late results refused"),
    "stuck": ("job without progress", "jobs without progress"),
    "deaths": ("process died", "processes died"),
}
_BREAKER = {
    "closed": "failing now and then",
    "open": "down; jobs that need it wait",
    "half-open": "being tried again",
}


def _worker(worker: WorkerReport) -> str:
    info = worker.info
    parts = [f"{worker.worker_id} on {worker.host}, seen {age(worker.seen_at)}"]
    parts += [how_many(info[name], *words) for name, words in _DID.items() if info.get(name)]
    last_death = info.get("last_death")
    return ", ".join(parts) + (f" (last: {last_death})" if last_death else "")


WATCH_S = 3.0
_FILTERS = ("status", "tenant", "collection", "item_type", "after")


@click.command()
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--watch", is_flag=True, help="Refresh every 3 seconds until Ctrl-C or the end of the job.")
@click.option("--children", is_flag=True, help="List child jobs as well.")
@filter_options
@click.pass_context
def jobs(context: click.Context, /, job_id: str | None, watch: bool, children: bool, **given: Any) -> None:
    """List jobs, newest first, or show one.

    Child jobs, which a job expanded into, are left out unless --children is given.

    \b
    penstock jobs --status failed,running
    penstock jobs job_0660 --watch
    """
    session = context.find_object(Session)
    assert session is not None
    if job_id is not None and (children or any(given[name] for name in _FILTERS)):
        raise click.UsageError("Give an ID, or options that select jobs, not both.")
    while True:
        if watch and not session.as_json:
            click.clear()
        if job_id is None:
            _print_page(session, given, top_level=None if children else True)
        else:
            view = session.readers.view(job_id)
            _print_job(session, view)
            watch = watch and not view.details.job.ended
        if not watch:
            return
        time.sleep(WATCH_S)


@click.command()
@click.option("--tenant", metavar="NAME", help="Count only this tenant's documents.")
@click.pass_obj
def status(session: Session, tenant: str | None) -> None:
    """Show job counts, documents and workers."""
    stats, overview = session.services.stats(), session.services.overview(tenant)
    if session.as_json:
        answer = {"queue": stats_as_json(stats), "documents": overview, "projects": session.project_names}
        emit_json(answer | {"worker_here": session.worker_alive()})
        return
    _print_stats(stats)
    emit("")
    _print_documents(session, overview)
    # A job in progress without a worker: the worker died, or left the rest of a document to the next one.
    unfinished = any(stats.by_status.get(status) for status in ("pending", "in_progress"))
    if not session.quiet and unfinished and not session.worker_alive():
        emit("\nNo worker is running. Start one with: penstock worker")


def _print_documents(session: Session, overview: Overview) -> None:
    projects = any(each.tenant_id in session.project_names for each in overview.tenants)
    header = ["project" if projects else "tenant", "collection", "branch", "documents", "chunks"]
    rows = [
        [
            printable(session.tenant_name(each.tenant_id)),
            each.collection,
            printable(each.branch),
            each.sources,
            each.chunks,
        ]
        for each in overview.tenants
    ]
    for word in ("partial", "failed"):
        counts = [getattr(each, word) for each in overview.tenants]
        if any(counts):
            header.append(word)
            rows = [[*row, count or ""] for row, count in zip(rows, counts, strict=True)]
    emit(table(header, rows) if rows else "No documents yet. Try: penstock index FOLDER")
    open_tasks = [
        (
            task_type.replace("_", " "),
            ", ".join(f"{number:,} {word}" for word, number in counts.items() if number),
        )
        for task_type, counts in overview.tasks.items()
        if any(counts.get(word) for word in ("pending", "processing", "failed"))
    ]
    if open_tasks:
        emit("\n" + fields(open_tasks))
    _print_models(overview, session.settings.embedder)


def _print_models(overview: Overview, embedder: str) -> None:
    """Print the models only when they differ from the settings or from each other."""
    model = overview.model
    facts: list[tuple[str, object]] = []
    if model is not None and overview.tenants and not model.startswith(f"{embedder}-"):
        facts.append(("Model", f"{model}; the settings name {embedder}, so this host cannot index"))
    for space, chunks in overview.spaces.items():
        if model is not None and space != model:
            facts.append(("Former model", f"{space}: {how_many(chunks, 'chunk')} left; run penstock rebuild"))
    facts += [("Filling", store.unfilled()) for store in overview.stores if not store.filled]
    if facts:
        emit("\n" + fields(facts))


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.pass_context
def cancel(context: click.Context, ids: tuple[str, ...]) -> None:
    """Cancel jobs and their child jobs.

    A pending job is cancelled at once. A running job stops at its next checkpoint.
    """
    session = context.find_object(Session)
    assert session is not None

    def one(job_id: str) -> tuple[dict[str, Any], str]:
        answer = session.services.cancel(job_id)
        record = {"job_id": answer.job_id, "status": answer.status, "message": answer.message}
        return record, f"{answer.job_id}: {answer.message}"

    _each(context, session, ids, one)


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all-failed", is_flag=True, help="Retry every failed job that matches the options below.")
@click.option("--tenant", metavar="NAME", help="With --all-failed: retry only this tenant.")
@click.option("--collection", metavar="NAME", help="With --all-failed: retry only this collection.")
@click.option(
    "--item-type",
    cls=RenamedOption,
    former=("--type",),
    metavar="TYPE",
    help="With --all-failed: retry only this item type.",
)
@click.pass_context
def retry(
    context: click.Context,
    ids: tuple[str, ...],
    all_failed: bool,
    tenant: str | None,
    collection: str | None,
    item_type: str | None,
) -> None:
    """Retry failed or cancelled jobs.

    A retried job has all its retries again. For a folder only the failed files run again, for a document only
    the failed pages and chunks. A job that left a partial document counts as failed.
    """
    session = context.find_object(Session)
    assert session is not None
    if bool(ids) is all_failed:
        raise click.UsageError("Give ids, or --all-failed.")
    if ids and (tenant or collection or item_type):
        raise click.UsageError("--tenant, --collection and --item-type go with --all-failed.")
    if ids:

        def one(job_id: str) -> tuple[dict[str, Any], str]:
            job = session.services.retry(job_id)
            return {
                "job_id": job.queue_id,
                "status": spoken(job.status),
                "run": job.run,
            }, f"{job.queue_id}: queued again"

        _each(context, session, ids, one)
        return
    answer = session.services.retry_failed(tenant_id=tenant, collection=collection, item_type=item_type)
    if session.as_json:
        emit_json({"retried": answer.retried, "twins": answer.twins})
        return
    emit(f"{how_many(answer.retried, 'job')} queued again")
    for job_id, twin in answer.twins.items():
        emit(f"{job_id}: not retried, live job {twin} has the same key or holds its lock")


def _each(
    context: click.Context,
    session: Session,
    ids: tuple[str, ...],
    one: Callable[[str], tuple[dict[str, Any], str]],
) -> None:
    """Run one call per id. A refusal does not stop the rest; the first refusal gives the exit code."""
    records: list[dict[str, Any]] = []
    refused: list[PenstockError] = []
    for job_id in ids:
        try:
            record, line = one(job_id)
        except PenstockError as error:
            if len(ids) == 1:
                raise
            refused.append(error)
            records.append({"id": job_id, "error": {"code": error.code, "message": error.message}})
            line = ""
            if not session.as_json:
                emit_error(error, as_json=False)
        else:
            records.append(record)
        if line and not session.as_json:
            emit(line)
    if session.as_json:
        emit_json(records[0] if len(ids) == 1 else records)
    if refused:
        context.exit(exit_code(refused[0]))


@click.command()
@click.option(
    "--status",
    multiple=True,
    metavar="STATUS",
    required=True,
    help="Status to remove: done, failed or cancelled; may be repeated or joined by commas.",
)
@click.option(
    "--older-than",
    metavar="DURATION",
    default="0s",
    callback=duration,
    help="Remove only jobs that ended longer ago: 12h, 7d.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def purge(session: Session, status: tuple[str, ...], older_than: timedelta, yes: bool) -> None:
    """Remove ended jobs and their child jobs for good."""
    words = all_words(status)
    if not yes and not _agreed(words, older_than):
        emit("Nothing was removed.")
        raise click.exceptions.Exit(REFUSED)
    removed = session.services.purge(status=words, older_than=older_than)
    if session.as_json:
        emit_json({"removed": removed})
    else:
        emit(f"{how_many(removed, 'job')} removed")


def _agreed(words: list[str], older_than: timedelta) -> bool:
    since = f" that ended more than {span(older_than.total_seconds())} ago" if older_than else ""
    return agreed(f"Remove all {' and '.join(words)} jobs{since} for good?")


def _scope_options(command: Command) -> Command:
    for option in (
        click.option("--all", "everything", is_flag=True, help="All tenants and collections."),
        click.option("--collection", metavar="NAME", help="Collection, of --tenant or of all tenants."),
        click.option("--tenant", metavar="NAME", help="Tenant."),
    ):
        command = option(command)
    return command


@click.command()
@_scope_options
@click.pass_obj
def pause(session: Session, tenant: str | None, collection: str | None, everything: bool) -> None:
    """Pause the jobs of a tenant or collection. Running jobs continue."""
    scope = session.services.pause(tenant_id=_tenant(tenant, collection, everything), collection=collection)
    if session.as_json:
        emit_json({"paused": {"tenant_id": scope.tenant_id, "collection": scope.collection}})
    else:
        emit(f"Paused: {_named(scope.tenant_id, scope.collection)}")


@click.command()
@_scope_options
@click.pass_obj
def resume(session: Session, tenant: str | None, collection: str | None, everything: bool) -> None:
    """Resume paused jobs. Give the same options as for the pause."""
    tenant = _tenant(tenant, collection, everything)
    released = session.services.resume(tenant_id=tenant, collection=collection)
    if session.as_json:
        emit_json({"released": released})
    else:
        emit(f"Resumed: {_named(tenant or '*', collection or '*')}; {how_many(released, 'job')} released")


def _tenant(tenant: str | None, collection: str | None, everything: bool) -> str | None:
    if everything is bool(tenant or collection):
        raise click.UsageError("Give --tenant, --collection or both, or else --all.")
    return "*" if everything else tenant


def _named(tenant_id: str, collection: str) -> str:
    if (tenant_id, collection) == ("*", "*"):
        return "everything"
    parts = [("tenant", tenant_id), ("collection", collection)]
    return ", ".join(f"{noun} {name}" for noun, name in parts if name != "*")


_PLACED = frozenset(("file", "folder", "project", "rename", "delete_document"))
"""Item types whose path decides the place. Of others the catalog is not opened."""


class _AddOptions(TypedDict):
    """The options of ``queue add`` as click passes them."""

    payload: str | None
    path: str | None
    text: str | None
    tenant: str | None
    collection: str | None
    branch: str | None
    project: bool | None
    priority: int | None
    run_at: str | None
    delay: timedelta | None
    force: bool
    key: str | None
    job_id: str | None
    after: tuple[str, ...]
    on_dependency_failure: str | None
    limit_key: str | None
    result_ttl: timedelta | None
    webhook: str | None


@click.command()
@click.argument("item_type")
@click.argument("op")
@click.option("--payload", metavar="JSON", help="Payload as JSON, @FILE, or - for standard input.")
@click.option("--path", metavar="PATH", help="Path of a file, folder or project; made absolute.")
@click.option("--text", metavar="TEXT", help="Text of a content job.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the job.")
@click.option("--collection", metavar="NAME", help="Collection for the result.")
@click.option("--branch", metavar="NAME", help="Branch of the documents. Default: the checked-out one.")
@click.option(
    "--project/--no-project",
    default=None,
    help="Job of the project around the path, or of none. Default: in a git work tree.",
)
@click.option(
    "--priority",
    type=int,
    metavar="0-10",
    help="Priority; 10 is claimed first. Default: by item type, else 9.",
)
@click.option("--run-at", metavar="TIME", help="Earliest start, such as 2026-01-31T12:00:00Z.")
@click.option(
    "--delay",
    metavar="DURATION",
    callback=duration,
    help="Time until the earliest start: 90s, 5m, 2h, 7d.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Add the job even if the same one is pending or running; index unchanged files again.",
)
@click.option(
    "--key",
    metavar="TEXT",
    help="Key of a function call: while a job with this key is live, it is not added again.",
)
@click.option("--id", "job_id", metavar="ID", help="Job id of your own; by default a new one.")
@click.option(
    "--after",
    metavar="ID",
    multiple=True,
    help="Job that has to end first, by its id or a unique prefix; may be repeated.",
)
@click.option(
    "--on-dependency-failure",
    type=click.Choice(["cancel", "run"]),
    help="What to do if a job named by --after fails or is cancelled. Default: cancel.",
)
@click.option("--limit-key", metavar="KEY", help="Key of a limit for the job; see penstock limit.")
@click.option(
    "--result-ttl",
    metavar="DURATION",
    callback=duration,
    help="Time after the end for which the result is kept: 90s, 5m, 2h, 7d.",
)
@click.option("--webhook", metavar="URL", help="URL that the end of the job is sent to, signed.")
@click.pass_obj
def add(session: Session, item_type: str, op: str, **options: Unpack[_AddOptions]) -> None:
    """Add one job to the queue.

    \b
    penstock queue add file ingest --path report.pdf
    penstock queue add content ingest --text "The mill runs at dawn."
    penstock queue add folder ingest --path docs --payload '{"patterns": ["*.md"]}'
    penstock queue add function run --payload @call.json --delay 5m
    penstock queue add file ingest --path b.md --after job_0660f5
    """
    payload = read_payload(options["payload"])
    add_path(payload, item_type, options["path"])
    add_text(payload, item_type, options["text"])
    jobs = session.assembly.jobs
    after = [jobs.job(each).queue_id for each in options["after"]]
    submission: Submission = {
        "item_type": item_type,
        "op": op,
        "payload": payload,
        "tenant_id": options["tenant"],
        "collection": options["collection"],
        "priority": options["priority"],
        "run_at": options["run_at"],
        "delay": options["delay"],
        "force": options["force"],
        "key": options["key"],
        "job_id": options["job_id"],
        "after": after,
        "on_dependency_failure": options["on_dependency_failure"],
        "limit": options["limit_key"],
        "result_ttl": _seconds_of(options["result_ttl"]),
        "webhook": options["webhook"],
    }
    if options["branch"] is not None:
        submission["branch"] = options["branch"]
    if item_type in _PLACED:
        submission = session.assembly.documents.placed(submission, project=options["project"])
    receipt = jobs.submit(**submission)
    if session.as_json:
        emit_json(receipt_as_json(receipt))
    else:
        session.confirm_done(_confirmation(receipt, after))
        if item_type == "function":
            session.hint("Run it with a worker of its application: penstock worker --app MODULE:NAME")


def _seconds_of(time: timedelta | None) -> int | None:
    return None if time is None else round(time.total_seconds())


def _confirmation(receipt: Receipt, after: Sequence[str]) -> str:
    # The message about a duplicate names the job already.
    lines = [receipt.message if receipt.dedupe_hit else f"{receipt.message}: {receipt.job_id}"]
    if receipt.status not in ("pending", "in_progress"):
        return f"{receipt.job_id}: {receipt.message}"
    if receipt.run_at is not None:
        lines.append(f"Not before {receipt.run_at:%Y-%m-%d %H:%M:%S} UTC ({age(receipt.run_at)})")
    elif after and not receipt.dedupe_hit:
        verb = "has" if len(after) == 1 else "have"
        lines.append(f"It starts when {', '.join(after)} {verb} ended.")
    elif receipt.status != "pending":
        lines.append(f"Run {receipt.run} of that job does the work.")
    elif receipt.queue_position is not None:
        lines.append(f"Queue position: {receipt.queue_position + 1:,} of {receipt.queue_length:,}")
    return "\n".join(lines)


@click.group(cls=CommandGroup)
def queue() -> None:
    """Add jobs of any type, count, pause and purge jobs."""


for command in (add, stats, pause, resume, purge):
    queue.add_command(command)
# Single jobs have commands of their own: jobs, cancel and retry.
for command in (
    list_jobs,
    show,
    cancel,
    retry,
    redis.queue_status,
):
    queue.add_former(command)
