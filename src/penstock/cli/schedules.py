"""``penstock schedule``: jobs by the clock."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import read_payload
from penstock.cli.output import age, emit, emit_json, fields, table
from penstock.cli.progress import receipt_as_json
from penstock.cli.session import CommandGroup, Session

if TYPE_CHECKING:
    from penstock.client.schedule_calls import ClientSchedules
    from penstock.service.schedules import ScheduleRecord, Schedules


def _schedules(session: Session) -> Schedules | ClientSchedules:
    """The schedules of the server that the user chose, or of this machine."""
    if session.client is not None:
        return session.client.schedules
    from penstock.service.schedules import Schedules

    return Schedules(session.assembly.jobs, lambda: session.assembly.documents)


_tenant = click.option("--tenant", "tenant_id", metavar="NAME", help="Tenant who owns the schedule.")


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Add, list, pause and remove schedules: jobs that run by the clock.

    Every worker of the store runs them; no other process is needed.
    """


@schedule.command()
@click.argument("timing")
@click.argument("action", type=click.Choice(["index", "call", "backup"]))
@click.argument("target", metavar="PATH|FUNCTION|DIRECTORY")
@click.argument("payload", required=False)
@click.option(
    "--name", metavar="NAME", help="Name of the schedule. Default: index-FOLDER, the function, or backup."
)
@click.option("--tz", "zone", metavar="ZONE", help="Time zone. Default: PENSTOCK_TIME_ZONE, or else UTC.")
@click.option(
    "--missed",
    type=click.Choice(["skip", "run-once", "run-all"]),
    default="run-once",
    show_default=True,
    help="What happens to runs that were missed while no worker ran.",
)
@click.option("--replace", is_flag=True, help="Change the schedule of this name, if there is one.")
@click.option("--collection", metavar="NAME", help="Collection of the jobs.")
@click.option(
    "--project/--no-project",
    default=None,
    help="Index PATH as a project, or as any folder. Default: a project in a git work tree.",
)
@click.option("--priority", type=click.IntRange(0, 10), metavar="0-10", help="Priority of the jobs.")
@click.option(
    "--key", metavar="TEXT", help="Key of the calls: no call is added while a job with this key is live."
)
@click.option(
    "--keep", type=click.IntRange(min=1), help="Keep this many backups in the directory; delete older ones."
)
@_tenant
@click.pass_obj
def add(
    session: Session, /, timing: str, action: str, target: str, payload: str | None, **given: Any
) -> None:
    """Add a schedule that indexes a path, calls a function, or backs up all stores.

    TIMING is a cron expression (minute hour day month weekday), a name such as @daily, or an interval.

    \b
    penstock schedule add "0 3 * * *" index ~/notes --tz Europe/Berlin
    penstock schedule add "every 15m" call refresh '{"full": false}'
    penstock schedule add @monthly call report --missed skip
    penstock schedule add "0 2 * * *" backup /var/backups/penstock --keep 7
    """
    options = {name: given[name] for name in ("name", "zone", "missed", "replace", "tenant_id")}
    each = {name: given[name] for name in ("collection", "priority", "key") if given[name] is not None}
    schedules = _schedules(session)
    if action != "call" and (payload is not None or "key" in each):
        raise click.UsageError("A payload and --key are for functions only.")
    if action != "backup" and given["keep"] is not None:
        raise click.UsageError("--keep is for backups only.")
    if action != "index" and given["project"] is not None:
        raise click.UsageError("--project and --no-project are for the action index only.")
    path = session.path(target) if session.client is not None else target
    if action == "index":
        if given["project"] is not None:
            each["project"] = given["project"]
        record = schedules.add_index(timing, path, index=each, **options)  # type: ignore[arg-type]
    elif action == "backup":
        if "collection" in each:
            raise click.UsageError("A backup has all collections; leave out --collection.")
        record = schedules.add_backup(timing, path, keep=given["keep"], **each, **options)
    else:
        body = read_payload(payload or "{}")
        record = schedules.add_call(timing, target, body, call=each, **options)  # type: ignore[arg-type]
    _print_record(session, record, f"Schedule {record.name} added: {record.does}")


@schedule.command("list")
@_tenant
@click.pass_obj
def list_schedules(session: Session, /, tenant_id: str | None) -> None:
    """List the schedules with their next runs."""
    found = _schedules(session).list(tenant_id)
    if session.as_json:
        emit_json({"schedules": found})
    elif found:
        rows = [(one.name, one.timing, one.zone, _next(one), one.runs, one.does) for one in found]
        emit(table(["name", "timing", "zone", "next run", "runs", "does"], rows))
    else:
        emit("There are no schedules.")
        session.hint('Add one: penstock schedule add "0 3 * * *" index ~/notes')


def _next(record: ScheduleRecord) -> str:
    if record.paused:
        return "paused"
    return f"{_local(record.next_at)} ({age(record.next_at)})" if record.next_at else "never"


def _local(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%a %Y-%m-%d %H:%M:%S}"


def _in_zone(text: str) -> str:
    return f"{datetime.fromisoformat(text):%a %Y-%m-%d %H:%M:%S %z}"


@schedule.command()
@click.argument("name")
@_tenant
@click.pass_obj
def show(session: Session, /, name: str, tenant_id: str | None) -> None:
    """Show one schedule."""
    record = _schedules(session).show(name, tenant_id=tenant_id, count=3)
    if session.as_json:
        emit_json(record)
        return
    emit(
        fields(
            [
                ("Name", record.name),
                ("Does", record.does),
                ("Timing", f"{record.timing} in {record.zone}"),
                ("Next run", _next(record)),
                ("Missed runs", record.missed),
                ("Runs", f"{record.runs:,}"),
                ("Skipped", f"{record.skipped:,}" if record.skipped else None),
                ("Last run", f"{_local(record.last_at)} ({age(record.last_at)})" if record.last_at else None),
                ("Last job", _last(record)),
                ("Tenant", session.tenant_name(record.tenant_id)),
            ]
        )
    )


def _last(record: ScheduleRecord) -> str | None:
    """The last job and how it went."""
    words = ": ".join(word for word in (record.last_status, record.last_error) if word)
    return f"{record.last_job_id} ({words})" if words else record.last_job_id


@schedule.command("next")
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 100), default=5, show_default=True, help="Number of runs.")
@_tenant
@click.pass_obj
def next_runs(session: Session, /, name: str, count: int, tenant_id: str | None) -> None:
    """List the next runs of a schedule, in its own time zone and in local time."""
    record = _schedules(session).show(name, tenant_id=tenant_id, count=count)
    if session.as_json:
        emit_json({"name": record.name, "next": record.next, "next_in_zone": record.next_in_zone})
    elif not record.next:
        emit(f"{record.name} is paused." if record.paused else f"{record.name} has no next run.")
    else:
        times = zip(record.next_in_zone, record.next, strict=True)
        rows = [(_in_zone(there), _local(here)) for there, here in times]
        emit(table([record.zone, "local time"], rows))


@schedule.command()
@click.argument("name")
@_tenant
@click.pass_obj
def pause(session: Session, /, name: str, tenant_id: str | None) -> None:
    """Stop running a schedule until it is resumed."""
    record = _schedules(session).pause(name, tenant_id=tenant_id)
    _print_record(session, record, f"Schedule {name} paused.")


@schedule.command()
@click.argument("name")
@_tenant
@click.pass_obj
def resume(session: Session, /, name: str, tenant_id: str | None) -> None:
    """Run a paused schedule again, from its next time on."""
    record = _schedules(session).resume(name, tenant_id=tenant_id)
    _print_record(session, record, f"Schedule {name} resumed.")


def _print_record(session: Session, record: ScheduleRecord, text: str) -> None:
    if session.as_json:
        emit_json(record)
        return
    if record.next:
        text += f"\nNext run: {_in_zone(record.next_in_zone[0])} in {record.zone} ({age(record.next_at)})"
    session.confirm_done(text)


@schedule.command("run-now")
@click.argument("name")
@_tenant
@click.pass_obj
def run_now(session: Session, /, name: str, tenant_id: str | None) -> None:
    """Add the job of a schedule now. Its next run stays."""
    receipt = _schedules(session).run_now(name, tenant_id=tenant_id)
    if session.as_json:
        emit_json(receipt_as_json(receipt))
    else:
        session.confirm_done(f"{receipt.message}: {receipt.job_id}")


@schedule.command()
@click.argument("name")
@_tenant
@click.pass_obj
def remove(session: Session, /, name: str, tenant_id: str | None) -> None:
    """Remove a schedule. Jobs that it added stay."""
    _schedules(session).remove(name, tenant_id=tenant_id)
    if session.as_json:
        emit_json({"removed": name})
    else:
        session.confirm_done(f"Schedule {name} removed.")
