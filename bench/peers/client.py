"""``python -m bench.peers.client MODULE``: adds jobs, in a process of its own.

It reads requests from its standard input, one JSON array (verb, then arguments) a line, and answers each with
a line.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from bench.peers.contract import Command, Side, place
from bench.peers.work import listen

BULK = 1_000
LOST_S = 30.0
"""After which a job counts as never run."""


class Client:
    def __init__(self, side: Side, ear: socket.socket) -> None:
        self._side = side
        self._ear = ear

    async def workers(self, count: int) -> list[Command]:
        return self._side.workers(count)

    async def one(self, first: int, count: int, limit_s: float) -> tuple[int, float]:
        """How many were added one by one, and in what time."""
        start = time.perf_counter()
        for number in range(first, first + count):
            await self._side.one({"kind": "noop", "number": number})
            if time.perf_counter() - start > limit_s:
                break
        return number + 1 - first, time.perf_counter() - start

    async def many(self, first: int, count: int, limit_s: float) -> tuple[int, float]:
        """The same in calls of 1,000."""
        spent, added = 0.0, 0
        while added < count and spent < limit_s:
            numbers = range(first + added, first + min(added + BULK, count))
            payloads = [{"kind": "noop", "number": number} for number in numbers]
            start = time.perf_counter()
            await self._side.many(payloads)
            spent += time.perf_counter() - start
            added += len(payloads)
        return added, spent

    async def moments(self, count: int, limit_s: float) -> list[float]:
        """Milliseconds from the call to the first line of the function."""
        begun, found = time.monotonic(), list[float]()
        while len(found) < count and time.monotonic() - begun < limit_s:
            # Not in step with anything the worker does by the clock.
            await asyncio.sleep(random.uniform(0.005, 0.025))
            self._forget()
            start = time.monotonic()
            await self._side.one({"kind": "moment", "number": 0})
            found.append((await self._heard(LOST_S) - start) * 1000)
        return found

    async def stay(self) -> float:
        await self._side.one({"kind": "stay", "number": 0})
        return await self._heard(LOST_S)

    async def again(self, limit_s: float) -> float | None:
        """When it ran once more."""
        try:
            return await self._heard(limit_s)
        except TimeoutError:
            return None

    def _forget(self) -> None:
        """What was told late; and a floor, which does not read payloads, tells of any job."""
        self._ear.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self._ear.recv(100)

    async def _heard(self, limit_s: float) -> float:
        # Not on the event loop: some libraries send from it what ``one`` has only handed over.
        self._ear.settimeout(limit_s)
        return float(await asyncio.get_running_loop().run_in_executor(None, self._ear.recv, 100))


async def serve(name: str) -> None:
    module = importlib.import_module(f"bench.peers.sides.{name}")
    side: Side = module.SIDE()
    await side.prepare()
    # Some libraries connect, or make their tables, with the first call.
    await side.one({"kind": "nothing", "number": 0})
    client = Client(side, listen(place()))
    loop = asyncio.get_running_loop()
    _answer("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, *arguments = msgspec.json.decode(line)
        call: Callable[..., Awaitable[Any]] = getattr(client, verb)
        _answer(await call(*arguments))
    await side.close()


def _answer(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
