"""Procrastinate."""

from __future__ import annotations

from collections.abc import Sequence

from procrastinate import App, PsycopgConnector

from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side

CONCURRENCY = 10

app = App(connector=PsycopgConnector(conninfo=contract.store_url()))


async def _run(payload: Payload) -> int:
    return work.run(payload)


run = app.task(name="run")(_run)


class Procrastinate(Side):
    async def prepare(self) -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    async def one(self, payload: Payload) -> None:
        await run.defer_async(payload=payload)

    async def many(self, payloads: Sequence[Payload]) -> None:
        await run.batch_defer_async(*({"payload": payload} for payload in payloads))

    async def close(self) -> None:
        await app.close_async()

    def workers(self, count: int) -> list[Command]:
        worker = ("procrastinate", f"--app={__name__}.app", "worker", f"--concurrency={CONCURRENCY}")
        return [contract.module(*worker)] * count


SIDE = Procrastinate
