"""The hand-written floors of ``bench``, with the least worker there can be around them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from bench.contenders import Contender, open_floor
from bench.jobs import new_jobs
from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side

BATCH = 100
KIND = "floor-kind"
"""A file that says which work is meant: not every floor hands out its payloads."""
APART = 1_050_000
"""Numbers a process marks for itself, as it does not know those of the jobs."""


def _open() -> Contender:
    scheme = urlsplit(contract.store_url()).scheme
    engine = {"redis": "redis", "postgresql": "postgres"}.get(scheme, "sqlite")
    if engine == "postgres":
        os.environ["PENSTOCK_BENCH_POSTGRES_URL"] = contract.store_url()
    directory = contract.place() / "floor"
    directory.mkdir(exist_ok=True)
    return open_floor(engine, directory)


class Floor(Side):
    async def prepare(self) -> None:
        self._contender = _open()
        self._kind = contract.place() / KIND
        self._kind.write_text("noop")
        self._written = "noop"

    async def one(self, payload: Payload) -> None:
        await self.many([payload])

    async def many(self, payloads: Sequence[Payload]) -> None:
        kind = payloads[0]["kind"]
        if kind != self._written:
            self._kind.write_text(kind)
            self._written = kind
        self._contender.add(self._contender.prepare(new_jobs(len(payloads))))

    async def close(self) -> None:
        self._contender.close()

    def workers(self, count: int) -> list[Command]:
        return [contract.module(__name__, str(number)) for number in range(count)]


def main(worker: int) -> None:
    contender, kind = _open(), contract.place() / KIND
    number = worker * APART
    contender.wait(1)
    held: Sequence[object] = []
    while True:
        held = contender.exchange(held, BATCH)
        payload = _payload(kind)
        for _ in held:
            work.run(payload | {"number": number})
            number += 1
        if not held:
            contender.wait(1)


def _payload(kind: Path) -> Payload:
    return {"kind": kind.read_text()}


def _leave(_signal: int, _frame: FrameType | None) -> None:
    sys.exit()


SIDE = Floor

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    main(int(sys.argv[1]))
