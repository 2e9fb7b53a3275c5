"""``penstock queue``: the group; its commands stand in the modules imported here."""

from __future__ import annotations

import click

from penstock.cli import ingest, queue_add, queue_change, queue_look


@click.group()
def queue() -> None:
    """Put jobs into the queue, look at them, change their course."""


for command in (
    queue_add.add,
    queue_look.list_jobs,
    queue_look.show,
    queue_look.stats,
    ingest.queue_status,
    queue_change.cancel,
    queue_change.retry,
    queue_change.purge,
    queue_change.pause,
    queue_change.resume,
):
    queue.add_command(command)
