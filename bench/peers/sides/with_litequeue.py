"""litequeue: a table with pop and done, no workers of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence

from litequeue import LiteQueue

from bench.peers import contract
from bench.peers.contract import Command, Payload, Side
from bench.peers.sides.polled import serve


def _open() -> LiteQueue:
    return LiteQueue(f"{contract.store_url()}/lite.db", timeout=60)


class Litequeue(Side):
    async def prepare(self) -> None:
        self._queue = _open()

    async def one(self, payload: Payload) -> None:
        self._queue.put(json.dumps(payload))

    async def many(self, payloads: Sequence[Payload]) -> None:
        with self._queue.transaction():
            for payload in payloads:
                self._queue.put(json.dumps(payload))

    def workers(self, count: int) -> list[Command]:
        return [contract.module(__name__)] * count


def main() -> None:
    queue = _open()

    def take() -> tuple[object, Payload] | None:
        message = queue.pop()
        return (message.message_id, json.loads(message.data)) if message else None

    serve(take, queue.done)


SIDE = Litequeue

if __name__ == "__main__":
    main()
