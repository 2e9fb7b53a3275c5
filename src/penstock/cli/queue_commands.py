"""``penstock queue``: the group of commands, and ``queue add``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from penstock.cli import queue_inspect, queue_manage, redis_commands
from penstock.cli.arguments import add_path, add_text, duration, read_payload
from penstock.cli.command_group import CommandGroup
from penstock.cli.job_views import receipt_as_json
from penstock.cli.output import age, emit_json
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.service.requests import Receipt, Submission


PLACED = frozenset(("file", "folder", "project", "rename", "delete_document"))
"""Item types whose path decides the place. Of others the catalog is not opened."""


class AddOptions(TypedDict):
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
def add(session: Session, item_type: str, op: str, **options: Unpack[AddOptions]) -> None:
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
        "result_ttl": seconds_of(options["result_ttl"]),
        "webhook": options["webhook"],
    }
    if options["branch"] is not None:
        submission["branch"] = options["branch"]
    if item_type in PLACED:
        submission = session.assembly.documents.placed(submission, project=options["project"])
    receipt = jobs.submit(**submission)
    if session.as_json:
        emit_json(receipt_as_json(receipt))
    else:
        session.confirm_done(_confirmation(receipt, after))
        if item_type == "function":
            session.hint("Run it with a worker of its application: penstock worker --app MODULE:NAME")


def seconds_of(time: timedelta | None) -> int | None:
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


for command in (add, queue_inspect.stats, queue_manage.pause, queue_manage.resume, queue_manage.purge):
    queue.add_command(command)
# Single jobs have commands of their own: jobs, cancel and retry.
for command in (
    queue_inspect.list_jobs,
    queue_inspect.show,
    queue_manage.cancel,
    queue_manage.retry,
    redis_commands.queue_status,
):
    queue.add_former(command)
