"""``penstock queue``: the group; its commands stand in the modules imported here."""

from __future__ import annotations

import click

from penstock.cli import ingest, queue_add, queue_inspect, queue_manage


@click.group()
def queue() -> None:
    """Put jobs into the queue, look at them, change their course."""


for command in (
    queue_add.add,
    queue_inspect.list_jobs,
    queue_inspect.show,
    queue_inspect.stats,
    ingest.queue_status,
    queue_manage.cancel,
    queue_manage.retry,
    queue_manage.purge,
    queue_manage.pause,
    queue_manage.resume,
):
    queue.add_command(command)
