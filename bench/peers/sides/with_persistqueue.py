"""persist-queue's SQLiteAckQueue: get and ack, no workers of its own, one consuming process."""

from __future__ import annotations

from persistqueue import Empty, SQLiteAckQueue

from bench.peers import contract
from bench.peers.contract import Command, Payload, Side
from bench.peers.sides.polled import serve


def _open() -> SQLiteAckQueue:
    return SQLiteAckQueue(f"{contract.store_url()}/persist", timeout=60)


class PersistQueue(Side):
    async def prepare(self) -> None:
        self._queue = _open()

    async def one(self, payload: Payload) -> None:
        self._queue.put(payload)

    def workers(self, count: int) -> list[Command]:
        return [contract.module(__name__)] * count


def main() -> None:
    queue = _open()

    def take() -> tuple[object, Payload] | None:
        try:
            item = queue.get(block=False, raw=True)
        except Empty:
            return None
        return item["pqid"], item["data"]

    serve(take, lambda key: queue.ack(id=key))


SIDE = PersistQueue

if __name__ == "__main__":
    main()
