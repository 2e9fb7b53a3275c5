"""``penstock limit``: how many jobs of a key run at once, and how many start in a period."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock import clock
from penstock.cli.output import age, emit, emit_json, fields, table
from penstock.cli.session import CommandGroup, Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.client.limit_calls import ClientLimits
    from penstock.service.limits import LimitRecord, Limits


def _limits(session: Session) -> Limits | ClientLimits:
    """The limits of the server that the user chose, or of this machine."""
    if session.client is not None:
        return session.client.limits
    from penstock.service.limits import Limits

    return Limits(session.assembly.jobs.queue)


@click.group(cls=CommandGroup)
def limit() -> None:
    """Set, list and remove limits: how many jobs of a key run at once, and start in a period.

    A limit counts on all hosts of the store, and for jobs of all tenants.
    """


@limit.command("set")
@click.argument("key")
@click.option(
    "--concurrent", type=click.IntRange(1), metavar="N", help="Number of jobs that may run at once."
)
@click.option("--rate", metavar="RATE", help="Starts in a period, evenly spread: 60/min, 5/s, 1000/hour.")
@click.pass_obj
def set_limit(session: Session, /, key: str, concurrent: int | None, rate: str | None) -> None:
    """Set the limit of a key, new or in place of the former one.

    \b
    penstock limit set embeddings --rate 60/min
    penstock limit set gpu --concurrent 2
    """
    record = _limits(session).set(key, concurrent=concurrent, rate=rate)
    if session.as_json:
        emit_json(record)
    else:
        session.confirm_done(f"Limit {record.key}: {_allowed(record)}")


@limit.command("list")
@click.pass_obj
def list_limits(session: Session, /) -> None:
    """List the limits, with their jobs that have a slot or wait."""
    found = _limits(session).list()
    if session.as_json:
        emit_json({"limits": found})
    elif found:
        rows = [
            (one.key, one.concurrent or "any", one.rate or "any", f"{one.slots:,}", f"{one.waiting:,}")
            for one in found
        ]
        emit(table(["key", "at once", "rate", "slots taken", "waiting"], rows))
    else:
        emit("There are no limits.")
        session.hint("Set one: penstock limit set embeddings --rate 60/min")


@limit.command()
@click.argument("key")
@click.pass_obj
def show(session: Session, /, key: str) -> None:
    """Show one limit."""
    record = _limits(session).show(key)
    if session.as_json:
        emit_json(record)
        return
    emit(
        fields(
            [
                ("Key", record.key),
                ("Allows", _allowed(record)),
                ("Slots taken", f"{record.slots:,}"),
                ("Waiting", f"{record.waiting:,}"),
                ("Next start", _next(record)),
            ]
        )
    )


@limit.command()
@click.argument("key")
@click.pass_obj
def remove(session: Session, /, key: str) -> None:
    """Remove a limit. Jobs that wait for it can start."""
    _limits(session).remove(key)
    if session.as_json:
        emit_json({"removed": key})
    else:
        session.confirm_done(f"Limit {key} removed.")


def _next(record: LimitRecord) -> str | None:
    ahead = record.next_at is not None and record.next_at > clock.now()
    return age(record.next_at) if record.waiting and record.next_at and ahead else None


def _allowed(record: LimitRecord) -> str:
    parts = []
    if record.concurrent is not None:
        parts.append(f"{how_many(record.concurrent, 'job')} at once")
    if record.rate is not None:
        parts.append(f"{record.rate} started, evenly spread")
    return ", ".join(parts)
