"""Lists of jobs, the details of one, and ``penstock queue stats``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from penstock import clock
from penstock.cli import index_summary
from penstock.cli.arguments import all_words
from penstock.cli.command_group import RenamedOption
from penstock.cli.job_views import (
    job_as_json,
    progress_text,
    spoken,
    stats_as_json,
    status_and_held,
    target,
    view_as_json,
)
from penstock.cli.output import age, emit, emit_json, fields, space_left, span, table
from penstock.cli.places import tenant_name
from penstock.cli.session import Command, Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.job import Job, WorkerReport
    from penstock.service.job_views import JobReport, JobView
    from penstock.service.jobs import JobFilter
    from penstock.service.requests import Stats


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
    print_page(session, given)


def print_page(session: Session, given: Mapping[str, Any], *, top_level: bool | None = None) -> None:
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
            *([f"{tenant_name(session, job.tenant_id)}/{job.collection}"] if others else []),
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
    print_job(session, session.readers.view(job_id))


def print_job(session: Session, view: JobView) -> None:
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
    name = tenant_name(session, job.tenant_id)
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
    from penstock.dependencies import dependencies_of
    from penstock.results import kept_until

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
    if report is None or job.item_type not in ("folder", "project"):
        yield "Progress", job.progress_json if job.progress else None
        yield "Result", job.result_json
        return
    payload = job.shown_payload
    yield "Progress", progress_text(report, payload.get("folder_path") or payload.get("project_root"))
    if job.ended:
        yield "Result", index_summary.reported(job, report)
    yield "Left out", index_summary.all_left_out(job)


def _own_metadata(job: Job) -> str | None:
    """Metadata of the caller, without the time of the request."""
    import msgspec

    from penstock.job import decoded_object

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
    print_stats(found)


def print_stats(found: Stats) -> None:
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
