"""``penstock rebuild``: re-index outdated documents, after a look at the cost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.exit_codes import REFUSED
from penstock.cli.job_progress import shown_live
from penstock.cli.output import emit, emit_json, table
from penstock.cli.session import QUEUE_DISABLED, Session
from penstock.service.paths import real
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.service.requests import Receipt
    from penstock.service.upkeep import Plan


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--tenant", metavar="NAME", help="Re-index only this tenant's documents.")
@click.option("--collection", metavar="NAME", help="Re-index only this collection.")
@click.option("--dry-run", is_flag=True, help="Print the documents to re-index, but do nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Run the jobs in this command when no worker is running, or only queue them.",
)
@click.pass_obj
def rebuild(session: Session, /, paths: tuple[str, ...], **given: Any) -> None:
    """Re-index documents whose settings or model changed.

    PATHs limit the documents to those at or below them. After a change of model the stored texts are embedded
    again, without reading files. After a new version of a parser or chunker its files are read again. Search
    finds the old version until the new one is ready.

    \b
    PENSTOCK_EMBEDDER=hashing penstock rebuild --dry-run
    """
    roots = [real(path) for path in paths]
    narrowed = bool(roots or given["tenant"] or given["collection"])
    plan = session.assembly.rebuilder.plan(roots, tenant_id=given["tenant"], collection=given["collection"])
    if not session.as_json:
        _show(plan, narrowed)
    if given["dry_run"] or (narrowed and not plan.looked_at):
        # Without a match the model stays as it is: the name was probably misspelt.
        if session.as_json:
            emit_json({"plan": plan, "queued": []})
        return
    asks = plan.total.documents and sys.stdin.isatty() and not given["yes"]
    if asks and not click.confirm("Re-index these documents now?", err=True):
        emit("Nothing was re-indexed.")
        raise SystemExit(REFUSED)
    receipts = session.assembly.rebuilder.start(plan)
    alive = session.assembly.worker_alive()
    disabled = session.waits_for_enabling(worker_alive=alive)
    here = given["wait"] and not alive and not disabled
    if here:
        _work_here(session, receipts)
    _print_result(session, plan, receipts, done=here)
    if disabled and receipts and not session.as_json:
        session.hint(QUEUE_DISABLED)


def _show(plan: Plan, narrowed: bool) -> None:
    from penstock.service.upkeep import REASONS

    if narrowed and not plan.looked_at:
        emit("No document matches these paths, this collection and this tenant.")
        return
    if not plan.total.documents:
        emit(f"All documents are up to date with {plan.space} and this version.")
        return
    rows = [(REASONS[reason], cost.documents, cost.chunks) for reason, cost in plan.by_reason.items()]
    emit(table(["reason", "documents", "chunks to embed, at most"], rows))
    emit(f"Model for the new vectors: {plan.space}.")


def _work_here(session: Session, receipts: list[Receipt]) -> None:
    for receipt in receipts:
        with shown_live(session, receipt.job_id, "Rebuilding", here=True):
            session.run_here(receipt.job_id, processes=2)


def _print_result(session: Session, plan: Plan, receipts: list[Receipt], *, done: bool) -> None:
    ids = [receipt.job_id for receipt in receipts]
    jobs = [session.assembly.jobs.job(job_id) for job_id in ids]
    failed = [job for job in jobs if job.status == "failed"]
    if session.as_json:
        emit_json({"plan": plan, "queued": ids, "failed": [job.queue_id for job in failed]})
    elif ids and not done:
        emit(f"Queued with the lowest priority: {', '.join(ids)}. Follow it with: penstock jobs --watch")
        emit(f"Only workers with embedder = {plan.space.partition('-')[0]} run them; restart the others.")
    elif ids:
        emit(
            "Done."
            if not failed
            else f"{len(failed)} of {how_many(len(jobs), 'job')} failed: penstock jobs ID"
        )
    if failed:
        raise SystemExit(REFUSED)
