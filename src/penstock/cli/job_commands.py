"""``penstock jobs`` and ``penstock status``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import queue_inspect
from penstock.cli.job_views import stats_as_json
from penstock.cli.output import emit, emit_json, fields, printable, table
from penstock.cli.places import tenant_name
from penstock.cli.session import Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.service.documents import Overview

WATCH_S = 3.0
FILTERS = ("status", "tenant", "collection", "item_type", "after")


@click.command()
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--watch", is_flag=True, help="Refresh every 3 seconds until Ctrl-C or the end of the job.")
@click.option("--children", is_flag=True, help="List child jobs as well.")
@queue_inspect.filter_options
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
    if job_id is not None and (children or any(given[name] for name in FILTERS)):
        raise click.UsageError("Give an ID, or options that select jobs, not both.")
    while True:
        if watch and not session.as_json:
            click.clear()
        if job_id is None:
            queue_inspect.print_page(session, given, top_level=None if children else True)
        else:
            view = session.readers.view(job_id)
            queue_inspect.print_job(session, view)
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
    queue_inspect.print_stats(stats)
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
            printable(tenant_name(session, each.tenant_id)),
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
