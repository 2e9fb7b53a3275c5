"""``penstock rename``, ``delete``, ``delete-tenant`` and ``verify``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import index_failures
from penstock.cli.arguments import agreed
from penstock.cli.exit_codes import REFUSED
from penstock.cli.output import emit, emit_json, printable, table
from penstock.cli.session import QUEUE_DISABLED, Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.job import Job
    from penstock.service.options import MovedWhere
    from penstock.service.requests import Receipt, Submission
    from penstock.service.upkeep import Difference

SHOWN = 20


@click.command()
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@click.option("--collection", metavar="NAME", help="Collection of the documents.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.pass_obj
def rename(session: Session, /, old: str, new: str, **where: Any) -> None:
    """Record that a file or folder was moved. No file is read or embedded again.

    Move the file yourself, before or after. The job compares both paths with the disk when it runs.
    """
    if session.client is not None:
        old, new = session.path(old), session.path(new)
        print_queued(
            session,
            session.client.rename(old, new, tenant_id=where["tenant"], collection=where["collection"]),
        )
        return
    from penstock.service.documents import renaming

    named: MovedWhere = {"tenant_id": where["tenant"], "collection": where["collection"]}
    submit(session, renaming(session.assembly.documents, old, new, named))


@click.command()
@click.argument("path_or_id", metavar="PATH|ID")
@click.option("--collection", metavar="NAME", help="Collection of the documents.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.pass_obj
def delete(session: Session, /, path_or_id: str, **where: Any) -> None:
    """Remove a document or folder from the index. Files are not touched."""
    if session.client is not None:
        named = {"tenant_id": where["tenant"], "collection": where["collection"]}
        print_queued(session, session.client.remove(session.path_or_id(path_or_id), **named))
        return
    place = session.place_of(path_or_id, tenant=where["tenant"])
    removal = session.assembly.documents.removal(
        path_or_id, tenant_id=place.tenant_id, collection=where["collection"], branch=place.branch
    )
    submit(session, removal)


@click.command("delete-tenant")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def delete_tenant(session: Session, /, name: str, yes: bool) -> None:
    """Remove all documents and jobs of a tenant. Files are not touched."""
    if not yes and not agreed(f"Remove all documents and jobs of tenant {printable(name)}?"):
        emit("Nothing was removed.")
        raise SystemExit(REFUSED)
    if session.client is not None:
        print_queued(session, session.client.remove_tenant(name))
        return
    payload = {"tenant_id_to_delete": name}
    submit(session, {"item_type": "delete_tenant", "op": "delete", "payload": payload})


def submit(session: Session, submission: Submission) -> None:
    """Submit a change and, where no worker is running, run it here."""
    alive = session.assembly.worker_alive()
    disabled = session.waits_for_enabling(worker_alive=alive)
    if not alive and not disabled and submission["item_type"] == "rename":
        session.assembly.documents.refuse_another_model()
    receipt = session.assembly.jobs.submit(exact=True, **submission)
    if alive or disabled:
        print_queued(session, receipt)
        if disabled and not session.as_json:
            session.hint(QUEUE_DISABLED)
        return
    session.run_here(receipt.job_id)
    job = session.assembly.jobs.job(receipt.job_id)
    result = {"outcome": str(job.status)} | job.result_fields
    if session.as_json:
        error = {"code": job.error_code, "message": job.error_message} if job.error_code else None
        emit_json({"job_id": job.queue_id, "status": str(job.status), "result": job.result, "error": error})
    elif job.status == "done":
        renamed = job.item_type == "rename" and job.result is None
        session.confirm_done(_renamed(job) if renamed else _removed(result))
    else:
        emit(f"{job.status}: {printable(job.error_message)} ({job.error_code})")
    if job.status != "done":
        raise SystemExit(REFUSED)


def _removed(result: dict[str, Any]) -> str:
    removed, because = result.get("removed"), result.get("note")
    what = f": {how_many(removed, 'document')}" if removed is not None else ""
    return f"{result['outcome']}{what}" + (f" ({printable(because)})" if because else "")


def _renamed(job: Job) -> str:
    number = (job.progress or {}).get("counts", {}).get("renamed")
    if number:
        return f"renamed: {how_many(number, 'document')}"
    return "nothing was renamed; both paths were compared with the disk"


def print_queued(session: Session, receipt: Receipt) -> None:
    """Print the id of a job that another process runs."""
    if session.as_json:
        emit_json({"job_id": receipt.job_id, "status": str(receipt.status), "result": None, "error": None})
    else:
        session.confirm_done(f"Job queued: {receipt.job_id}")


@click.command()
@click.option("--tenant", metavar="NAME", help="Check only this tenant.")
@click.option(
    "--fix",
    is_flag=True,
    help="Repair the catalog, and queue a job for each path that differs from the disk.",
)
@click.option("--checksum", is_flag=True, help="Compare file contents as well; reads every file.")
@click.pass_obj
def verify(session: Session, /, tenant: str | None, fix: bool, checksum: bool) -> None:
    """Compare the index with the disk and list differences.

    --fix leaves a path alone when its whole folder is missing or cannot be read: the disk may be unmounted.
    Remove such documents with `penstock delete PATH`.

    Files that cannot be read are listed after the differences; there is nothing of them in the index.

    The exit code is 0 without differences, and with --fix.
    """
    verifier = session.assembly.verifier
    found = list(verifier.differences(tenant, checksum=checksum))
    repaired = verifier.repair() if fix and any(one.path is None for one in found) else 0
    receipts = verifier.fix(found) if fix and found else []
    unreadable = verifier.unreadable(tenant)
    if session.as_json:
        queued = [receipt.job_id for receipt in receipts]
        emit_json({"differences": found, "repaired": repaired, "queued": queued, "unreadable": unreadable})
    elif not found:
        emit("Everything matches.")
    else:
        emit(table(["path", "difference"], [(one.path or "(catalog)", one.what) for one in found[:SHOWN]]))
        if len(found) > SHOWN:
            emit(f"… and {len(found) - SHOWN:,} more; --json lists all.")
        if repaired:
            emit(f"{how_many(repaired, 'row')} of the catalog or its copies repaired.")
        if receipts:
            emit(f"{how_many(len(receipts), 'job')} queued to repair the rest.")
        if fix:
            _print_left_alone(found)
        if (repaired or receipts) and not session.quiet and not session.assembly.worker_alive():
            emit("No worker is running. Start one with: penstock worker")
    if unreadable and not session.as_json:
        emit(f"\n{how_many(len(unreadable), 'file')} cannot be read:")
        index_failures.print_reasons("/", unreadable)
    if found and not fix:
        raise SystemExit(REFUSED)


def _print_left_alone(found: list[Difference]) -> None:
    left = Counter(one.left_alone for one in found if one.left_alone is not None)
    for reason, number in left.most_common(SHOWN):
        emit(f"{number:,} left alone: {printable(reason)}.")
    if left:
        emit("Run `penstock verify` again when they can be read, or remove them: penstock delete PATH")
