"""PgQueuer, on asyncpg."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side

BATCH = 100


async def main() -> None:
    worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(contract.store_url())))

    async def run(job: Any) -> None:
        work.run(json.loads(job.payload))

    worker.entrypoint("run")(run)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown.set)
    await worker.run(batch_size=BATCH)


class WithPgQueuer(Side):
    async def prepare(self) -> None:
        self._queries = Queries(AsyncpgDriver(await asyncpg.connect(self.url)))
        await self._queries.install()

    async def one(self, payload: Payload) -> None:
        await self._queries.enqueue("run", json.dumps(payload).encode())

    async def many(self, payloads: Sequence[Payload]) -> None:
        bodies = [json.dumps(payload).encode() for payload in payloads]
        await self._queries.enqueue(["run"] * len(bodies), bodies, [0] * len(bodies))

    def workers(self, count: int) -> list[Command]:
        return [contract.module(__name__)] * count


SIDE = WithPgQueuer

if __name__ == "__main__":
    asyncio.run(main())
