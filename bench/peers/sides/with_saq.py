"""SAQ, on PostgreSQL and on Redis."""

from __future__ import annotations

from typing import Any

from saq import Queue

from bench.peers import contract, work
from bench.peers.contract import Command, GatheringSide, Payload

CONCURRENCY = 100
queue = Queue.from_url(contract.store_url())


async def run(_context: Any, *, payload: Payload) -> int:
    return work.run(payload)


settings = {"queue": queue, "functions": [run], "concurrency": CONCURRENCY}


class Saq(GatheringSide):
    async def prepare(self) -> None:
        await queue.connect()

    async def one(self, payload: Payload) -> None:
        await queue.enqueue("run", payload=payload)

    async def close(self) -> None:
        await queue.disconnect()

    def workers(self, count: int) -> list[Command]:
        return [contract.module("saq", f"{__name__}.settings", "--quiet")] * count


SIDE = Saq
