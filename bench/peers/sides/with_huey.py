"""huey on SQLite."""

from __future__ import annotations

from huey import SqliteHuey

from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side

LOOK_S = "0.01"

huey = SqliteHuey(filename=f"{contract.store_url()}/huey.db")
run = huey.task()(work.run)


class Huey(Side):
    async def one(self, payload: Payload) -> None:
        run(payload)

    def workers(self, count: int) -> list[Command]:
        consumer = ("huey.bin.huey_consumer", f"{__name__}.huey", "-q", "-k", "process", "-w", str(count))
        return [contract.module(*consumer, "--delay", LOOK_S, "--max-delay", LOOK_S)]


SIDE = Huey
