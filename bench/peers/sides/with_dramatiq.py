"""dramatiq on Redis."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side

THREADS = 8

broker = RedisBroker(url=contract.store_url())
dramatiq.set_broker(broker)


def _run(payload: Payload) -> None:
    work.run(payload)


run = dramatiq.actor(actor_name="run")(_run)


class Dramatiq(Side):
    async def one(self, payload: Payload) -> None:
        run.send(payload)

    def workers(self, count: int) -> list[Command]:
        return [contract.module("dramatiq", __name__, "-p", str(count), "-t", str(THREADS))]


SIDE = Dramatiq
