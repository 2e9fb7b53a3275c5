"""Celery on Redis."""

from __future__ import annotations

from celery import Celery

from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side

app = Celery("bench", broker=contract.store_url(), backend=contract.store_url())
run = app.task(name="run")(work.run)


class WithCelery(Side):
    async def one(self, payload: Payload) -> None:
        run.delay(payload)

    def workers(self, count: int) -> list[Command]:
        arguments = ("celery", "-A", f"{__name__}:app", "worker", "-c", str(count), "-l", "ERROR")
        return [contract.module(*arguments, "--without-gossip", "--without-mingle")]


SIDE = WithCelery
