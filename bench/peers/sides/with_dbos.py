"""DBOS: a workflow without steps on a queue of its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

import sqlalchemy
from dbos import DBOS, DBOSClient

from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side

QUEUE = "bench"
OPTIONS = {"queue_name": QUEUE, "workflow_name": "run", "app_version": "bench"}
WORKER_CONCURRENCY = 500
POLLING_S = 0.05


def _launch(executor: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": contract.store_url(),
            "executor_id": executor,
            "application_version": "bench",
            "log_level": "ERROR",
        }
    )
    DBOS.workflow(name="run")(_run)
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=WORKER_CONCURRENCY, polling_interval_sec=POLLING_S)


def _run(payload: Payload) -> int:
    return work.run(payload)


class Dbos(Side):
    async def prepare(self) -> None:
        DBOS(config={"name": "bench", "system_database_url": self.url, "log_level": "ERROR"})
        DBOS.launch()
        DBOS.destroy()
        self._client = DBOSClient(system_database_url=self.url)
        self._engine = sqlalchemy.create_engine(self.url.replace("postgresql://", "postgresql+psycopg://"))

    async def one(self, payload: Payload) -> None:
        self._client.enqueue(OPTIONS, payload)

    async def many(self, payloads: Sequence[Payload]) -> None:
        with self._engine.begin() as connection:
            for payload in payloads:
                self._client.enqueue_in_transaction(connection, OPTIONS, payload)

    async def close(self) -> None:
        self._client.destroy()
        self._engine.dispose()

    def workers(self, count: int) -> list[Command]:
        return [contract.module(__name__, f"executor-{number}") for number in range(count)]


SIDE = Dbos

if __name__ == "__main__":
    _launch(sys.argv[1])
    threading.Event().wait()
