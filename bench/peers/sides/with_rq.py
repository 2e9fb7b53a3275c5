"""RQ, with its worker that does not fork for each job."""

from __future__ import annotations

from collections.abc import Sequence

import redis
from rq import Queue

from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side


class Rq(Side):
    async def prepare(self) -> None:
        self._queue = Queue(connection=redis.Redis.from_url(self.url))

    async def one(self, payload: Payload) -> None:
        self._queue.enqueue(work.run, payload)

    async def many(self, payloads: Sequence[Payload]) -> None:
        self._queue.enqueue_many([Queue.prepare_data(work.run, (payload,)) for payload in payloads])

    def workers(self, count: int) -> list[Command]:
        arguments = ("rq.cli", "worker", "--url", self.url, "--quiet", "--worker-class", "rq.SimpleWorker")
        return [contract.module(*arguments)] * count


SIDE = Rq
