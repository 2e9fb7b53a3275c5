"""``penstock rebuild``: bring documents up to the settings, after saying what that costs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.exit_codes import REFUSED
from penstock.cli.job_progress import JobProgress, shown
from penstock.cli.output import emit, emit_json, table
from penstock.cli.session import Session, json_option
from penstock.service.paths import real
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.service.rebuild import Plan
    from penstock.service.responses import Receipt


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--tenant", metavar="NAME", help="Only this tenant's documents.")
@click.option("--collection", metavar="NAME", help="Only this collection.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", default=True, help="Do the work here when no worker is running, or not.")
@json_option
@click.pass_obj
def rebuild(session: Session, /, paths: tuple[str, ...], **given: Any) -> None:
    """Do again what the settings would do otherwise: all documents, or those at or below PATHs.

    A change of model embeds the texts the catalog has; nothing is read. A new version of how a type is read
    or cut reads those files. It is done in the background; a search finds the old until the new is there.

    \b
    PENSTOCK_EMBEDDER=hashing penstock rebuild --dry-run
    """
    roots = [real(path) for path in paths]
    narrowed = bool(roots or given["tenant"] or given["collection"])
    plan = session.assembly.rebuilder.plan(roots, tenant_id=given["tenant"], collection=given["collection"])
    if not session.as_json:
        _show(plan, narrowed)
    if given["dry_run"] or (narrowed and not plan.looked_at):
        # Nor is the model changed for what is not there: a name was misspelt.
        if session.as_json:
            emit_json({"plan": plan, "queued": []})
        return
    if plan.total.documents and sys.stdin.isatty() and not given["yes"]:
        click.confirm("Do that now?", abort=True, err=True)
    receipts = session.assembly.rebuilder.start(plan)
    alive = session.assembly.worker_alive()
    if given["wait"] and not alive:
        _work_here(session, receipts)
    _tell(session, plan, receipts, done=given["wait"] and not alive)


def _show(plan: Plan, narrowed: bool) -> None:
    from penstock.service.rebuild import REASONS

    if narrowed and not plan.looked_at:
        emit("Nothing matched: no document lies there, or is of that collection and tenant.")
        return
    if not plan.total.documents:
        emit(f"Everything is as {plan.space} and this version would make it.")
        return
    rows = [(REASONS[reason], cost.documents, cost.chunks) for reason, cost in plan.by_reason.items()]
    emit(table(["because", "documents", "chunks to embed, at most"], rows))
    emit(f"Vectors will be those of {plan.space}.")


def _work_here(session: Session, receipts: list[Receipt]) -> None:
    for receipt in receipts:
        follower = JobProgress(session.assembly.further_jobs(), receipt.job_id, session.assembly.documents)
        with shown(follower, "Rebuilding"):
            session.run_here(receipt.job_id, processes=2)


def _tell(session: Session, plan: Plan, receipts: list[Receipt], *, done: bool) -> None:
    ids = [receipt.job_id for receipt in receipts]
    jobs = [session.assembly.jobs.job(job_id) for job_id in ids]
    failed = [job for job in jobs if job.status == "failed"]
    if session.as_json:
        emit_json({"plan": plan, "queued": ids, "failed": [job.queue_id for job in failed]})
    elif ids and not done:
        emit(f"Queued with the lowest priority: {', '.join(ids)}. Follow it with: penstock jobs --watch")
        emit(f"Only workers whose settings name {plan.space.partition('-')[0]} do it; restart the others.")
    elif ids:
        emit(
            "Done."
            if not failed
            else f"{len(failed)} of {how_many(len(jobs), 'job')} failed: penstock jobs ID"
        )
    if failed:
        raise SystemExit(REFUSED)
