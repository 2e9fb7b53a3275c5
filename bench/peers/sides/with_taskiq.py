"""taskiq on Redis streams, its broker that acknowledges."""

from __future__ import annotations

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench.peers import contract, work
from bench.peers.contract import Command, GatheringSide, Payload

broker = RedisStreamBroker(contract.store_url()).with_result_backend(
    RedisAsyncResultBackend(contract.store_url())
)


async def _run(payload: Payload) -> int:
    return work.run(payload)


run = broker.task(task_name="run")(_run)


class Taskiq(GatheringSide):
    async def prepare(self) -> None:
        # Makes the group of consumers: what was sent before it existed would not be seen.
        await broker.startup()

    async def one(self, payload: Payload) -> None:
        await run.kiq(payload)

    async def close(self) -> None:
        await broker.shutdown()

    def workers(self, count: int) -> list[Command]:
        arguments = ("taskiq", "worker", f"{__name__}:broker", "-w", str(count), "--log-level", "ERROR")
        return [contract.module(*arguments)]


SIDE = Taskiq
