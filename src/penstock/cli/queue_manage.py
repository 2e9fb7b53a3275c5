"""``penstock cancel`` and ``retry``; ``penstock queue purge``, ``pause`` and ``resume``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from penstock.cli.arguments import agreed, all_words, duration
from penstock.cli.command_group import RenamedOption
from penstock.cli.exit_codes import REFUSED, exit_code
from penstock.cli.job_views import spoken
from penstock.cli.output import emit, emit_error, emit_json, span
from penstock.cli.session import Command, Session
from penstock.errors import PenstockError
from penstock.vocabulary import how_many


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
