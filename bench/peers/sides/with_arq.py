"""arq on Redis."""

from __future__ import annotations

from typing import Any

from arq import create_pool
from arq.connections import RedisSettings

from bench.peers import contract, work
from bench.peers.contract import Command, GatheringSide, Payload


async def run(_context: Any, payload: Payload) -> int:
    return work.run(payload)


class Settings:
    """What ``arq`` reads."""

    functions = (run,)
    redis_settings = RedisSettings.from_dsn(contract.store_url())
    max_jobs = 100
    poll_delay = 0.01


class Arq(GatheringSide):
    async def prepare(self) -> None:
        self._pool = await create_pool(Settings.redis_settings)

    async def one(self, payload: Payload) -> None:
        await self._pool.enqueue_job("run", payload)

    def workers(self, count: int) -> list[Command]:
        return [contract.module("arq", f"{__name__}.Settings")] * count


SIDE = Arq
