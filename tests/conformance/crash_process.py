"""Process of the crash test: works on a store until killed, and reports every call before and after.

Run as ``python -m tests.conformance.crash_process ENGINE``. Each line on stdin, a seed and a place,
forks one that works there, so that starting it costs no imports. The lines it writes are ``Line``; when
it is gone, so says the process that forked it.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from penstock.clock import new_ids
from penstock.queue import transitions
from penstock.queue.job import Beat, Claim, ClaimRequest, JobQuery, NewJob, Settlement, Status
from penstock.queue.protocol import Queue
from tests.conformance.durable_engines import opened

LIFETIME_S = 120
"""It ends by itself when nobody kills it."""

WAITING = JobQuery(statuses=frozenset({Status.IN_PROGRESS}), waiting_for="children", limit=5)
WAYS = ["done"] * 8 + ["failed", "released", "waits", "waits", "expanded"]


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """One settlement: the outcome, and marker and number of new children."""

    queue_id: str
    claim_number: int
    way: str
    marker: str
    children: int


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """Report line: ``tries`` before a call, ``did`` afterwards, ``pid`` first and ``gone`` last."""

    pid: int = 0
    tries: str = ""
    did: str = ""
    marker: str = ""
    ids: list[str] = []
    attempts: list[Attempt] = []
    answers: list[Status | None] = []
    claims: list[tuple[str, int]] = []
    progress: tuple[str, int] | None = None
    error: str = ""
    gone: bool = False


def say(line: Line) -> None:
    # One write, shorter than a pipe's atomic size: a kill cannot leave half a line.
    os.write(1, msgspec.json.encode(line) + b"\n")


class Victim:
    def __init__(self, queue: Queue, seed: int) -> None:
        self._queue = queue
        self._random = Random(seed)
        self._seed = seed
        self._markers = 0
        self._beats = 0
        self._held: list[Claim] = []

    def work(self) -> None:
        actions = [self._add, self._exchange, self._settle, self._claim, self._renew, self._cancel]
        while True:
            # Signs of life make the journal long while the rows are few, so that it is compacted often.
            self._random.choices(actions, [4, 8, 2, 2, 12, 1])[0]()

    def _marker(self) -> str:
        self._markers += 1
        return f"{self._seed}-{self._markers}"

    def _new(self, count: int, marker: str) -> list[NewJob]:
        return [
            NewJob(
                queue_id=queue_id,
                item_type="file",
                op="ingest",
                tenant_id=self._random.choice(["ann", "bob"]),
                collection="docs",
                idempotency_key=f"{marker}-{index}",
                payload_json="{}" if index else '{"text":"' + "long " * 600 + '"}',
                metadata=msgspec.json.encode({"marker": marker}).decode(),
                lock_key=self._random.choice(["disk", "gpu", None, None, None, None, None]),
            )
            for index, queue_id in enumerate(new_ids(count))
        ]

    def _add(self) -> None:
        marker = self._marker()
        new = self._new(self._random.choice([1, 1, 2, 2, 3, 15]), marker)
        ids = [item.queue_id for item in new]
        say(Line(tries="add", marker=marker, ids=ids))
        self._queue.add(new)
        say(Line(did="add", marker=marker, ids=ids))

    def _claim(self) -> None:
        say(Line(tries="claim"))
        claims = self._queue.claim(self._request())
        self._took("claim", [], [], claims)

    def _settle(self) -> None:
        attempts, settlements = self._endings()
        say(Line(tries="settle", attempts=attempts))
        self._took("settle", attempts, self._queue.settle(settlements), [])

    def _exchange(self) -> None:
        attempts, settlements = self._endings()
        say(Line(tries="exchange", attempts=attempts))
        answer = self._queue.exchange(settlements, self._request())
        self._took("exchange", attempts, answer.settled, answer.claims)

    def _renew(self) -> None:
        if not self._held:
            return
        self._beats += 1
        claim = self._random.choice(self._held)
        say(Line(tries="renew"))
        self._queue.renew([Beat(claim.queue_id, claim.claim_number, progress_json=str(self._beats))])
        say(Line(did="renew", progress=(claim.queue_id, self._beats)))

    def _cancel(self) -> None:
        ids = [job.queue_id for job in self._queue.find(WAITING)[:1]]
        say(Line(tries="cancel", ids=ids))
        self._queue.cancel(ids)
        say(Line(did="cancel", ids=ids))

    def _request(self) -> ClaimRequest:
        return ClaimRequest("victim", self._random.randint(1, 20))

    def _endings(self) -> tuple[list[Attempt], list[Settlement]]:
        count = self._random.randint(0, len(self._held))
        ending, self._held = self._held[:count][:20], self._held[:count][20:] + self._held[count:]
        made = [self._ending(claim) for claim in ending]
        return [attempt for attempt, _ in made], [settlement for _, settlement in made]

    def _ending(self, claim: Claim) -> tuple[Attempt, Settlement]:
        # Children of children would grow faster than they are worked off.
        way = self._random.choice(WAYS) if claim.parent_id is None else "done"
        marker = self._marker()
        parent = way in ("waits", "expanded")
        children = tuple(self._new(self._random.randint(1, 4), marker)) if parent else ()
        if way == "expanded":
            self._held.append(claim)
        settlements: dict[str, Any] = {
            "done": lambda: transitions.done(claim),
            "failed": lambda: transitions.failed(claim, "ERR_PARSE", "not a PDF"),
            "released": lambda: transitions.released(claim, "shutting down"),
            "waits": lambda: transitions.waits(claim, children=children),
            "expanded": lambda: transitions.expanded(claim, children),
        }
        attempt = Attempt(claim.queue_id, claim.claim_number, way, marker, len(children))
        return attempt, settlements[way]()

    def _took(
        self, did: str, attempts: list[Attempt], answers: list[Status | None], claims: list[Claim]
    ) -> None:
        self._held += claims
        taken = [(claim.queue_id, claim.claim_number) for claim in claims]
        say(Line(did=did, attempts=attempts, answers=answers, claims=taken))


def _live_and_die(engine: str, seed: int, place: Path) -> None:
    signal.alarm(LIFETIME_S)
    say(Line(pid=os.getpid()))
    try:
        Victim(opened(engine, place), seed).work()
    except BaseException:
        say(Line(error=traceback.format_exc()[-2_000:]))
    finally:
        os._exit(1)


def main(engine: str) -> None:
    opened(engine, Path(sys.argv[2])).close()  # Imports whatever the engine needs.
    for order in sys.stdin:
        seed, place = order.split(maxsplit=1)
        pid = os.fork()
        if pid == 0:
            _live_and_die(engine, int(seed), Path(place.strip()))
        os.waitpid(pid, 0)
        say(Line(gone=True))


if __name__ == "__main__":
    main(sys.argv[1])
