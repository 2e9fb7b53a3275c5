"""Process of the power-cut test: adds, claims and ends jobs, and writes down each answer of the store.

Run as ``python -m tests.power_loss.recorded_process URL SYNCHRONOUS ROUNDS ANSWERS``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.database import sqlite
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest
from penstock.queue.jsonl.queue import JsonlQueue
from penstock.queue.protocol import Queue
from penstock.queue.sqlite.queue import SqliteQueue
from tests.stores.new_jobs import new

LOG_PAGES = 60
"""Small, so that the log is copied back several times in a short run."""
LONG = "x" * 3_000


def opened(url: str, synchronous: str = "FULL") -> Queue:
    scheme, _, path = url.partition("://")
    return JsonlQueue(Path(path)) if scheme == "jsonl" else SqliteQueue(path, synchronous=synchronous)


def main(url: str, synchronous: str, rounds: str, answers: str) -> None:
    sqlite.LOG_PAGES = LOG_PAGES
    log = os.open(answers, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(what: str, *ids: str) -> None:
        os.write(log, f"{what} {' '.join(ids)}\n".encode())

    queue = opened(url, synchronous)
    for number in range(int(rounds)):
        some = [
            new(3 * number + place, payload_json=f'{{"text":"{LONG}"}}' if place == 1 else "{}")
            for place in range(3)
        ]
        queue.add(some)
        acknowledge("added", *(job.queue_id for job in some))
        claims = queue.claim(ClaimRequest("worker", 2))
        ended = [transitions.done(claim, result_json=f'"{claim.queue_id}"') for claim in claims]
        queue.settle(ended)
        acknowledge("done", *(claim.queue_id for claim in claims))
    queue.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
