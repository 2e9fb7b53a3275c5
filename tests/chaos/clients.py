"""Clients of a deployment, over HTTP: calls of functions, and changes of a tree that is indexed.

A call without an answer is not repeated: it may have been accepted, and is then checked like all others.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count, cycle, product
from typing import Any, TypeVar

from penstock.client.sync_client import Client
from penstock.errors import (
    CannotCancel,
    InvalidRequest,
    PenstockError,
    QueueFull,
    ServerUnreachable,
    StoreError,
)
from penstock.service.requests import Submission
from tests.chaos.deployment import Deployment
from tests.documents.random_folder import Tree
from tests.worker.kill_load import NATIVE, TIMEOUT_S, Record, Stuck

T = TypeVar("T")
ENTITIES = 12
AHEAD = 150
"""Unfinished calls of functions, beside those of entities, before more are added."""
LINE = 12
"""Unfinished calls of one entity before more of them are added."""
JOB_S = 0.01
DELAYS_S = (0.4, 1.5)
URGENT = 8
CLIENT_S = 15.0
"""Time for an answer: a server may be frozen, and after that the call counts as unanswered."""
FILES = 25
EDIT_PAUSE_S = (0.1, 0.8)
AWAY = (ServerUnreachable, StoreError)


class Loop:
    """A thread that takes steps until it is left; a step returns the time to wait before the next."""

    def __init__(self, deployment: Deployment, chance: random.Random) -> None:
        self._chance = chance
        # Not repeated by the client: the checks count unanswered calls.
        self._client = Client(deployment.url, index_timeout=CLIENT_S, query_timeout=CLIENT_S, retry_for=0.0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[str] = []
        self.unanswered = 0
        self.refused: Counter[str] = Counter()
        self.crashed: BaseException | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def close(self) -> None:
        self._client.close()

    def step(self) -> float:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._over.wait(self.step())
        except Exception as error:  # reported by the run
            self.crashed = error

    def asked(self, request: Callable[[], Any]) -> str | None:
        """Submit once; return the id of an acknowledged job."""
        try:
            receipt = request()
        except AWAY:
            self.unanswered += 1
            self._over.wait(0.1)
        except QueueFull:
            self._over.wait(0.1)
        except InvalidRequest as error:
            self.refused[error.code] += 1
        else:
            self.acknowledged.append(receipt.job_id)
            return str(receipt.job_id)
        return None

    def persist(self, request: Callable[[], T], patience_s: float = 900.0) -> T:
        """Repeat a harmless request until there is an answer."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return request()
            except AWAY:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


class Calls(Loop):
    """Calls of functions, a few ahead of the workers: plain, delayed, urgent, of entities, and stuck ones."""

    def __init__(self, deployment: Deployment, chance: random.Random) -> None:
        super().__init__(deployment, chance)
        self.record = Record(deployment.record)
        self._numbers = count(1)
        self._open: dict[int, str] = {}
        """Entity, or nothing, of each acknowledged call that has not ended, by the number of the request."""
        self._ended: set[int] = set()
        self.keys: dict[str, str] = {}
        """Entities of acknowledged calls, in the order of the requests."""
        self._stuck = cycle(Stuck(do, way) for do, way in product(NATIVE, ("timeout", "cancel")))
        self._asked: list[Stuck] = []
        self._to_cancel: set[int] = set()
        self.cancelled_at: dict[str, float] = {}
        self.finished = 0

    def add_stuck(self) -> None:
        self._asked.append(next(self._stuck))

    def step(self) -> float:
        self.keep_up()
        if self._asked:
            self._call_stuck(self._asked.pop(0))
            return 0.0
        lines = Counter(self._open.values())
        entity = f"{self._chance.randrange(ENTITIES)}"
        if self._chance.random() < 0.5 and lines[entity] < LINE:
            self._call("sleep", entity)
        elif lines[""] < AHEAD:
            self._call("sleep", "")
        else:
            return 0.02
        return 0.0

    def keep_up(self) -> None:
        """Read what functions wrote; a call that is to be cancelled is cancelled as soon as it runs."""
        for what, job_id, _claim, _pid, _at, number in self.record.read_on():
            if what == "ended":
                self.finished += 1
                self._ended.add(int(number))
                self._open.pop(int(number), None)
            elif int(number) in self._to_cancel:
                self._to_cancel.discard(int(number))
                self.cancelled_at[job_id] = time.time()
                self.persist(lambda job_id=job_id: self._cancel(job_id))  # type: ignore[misc]

    def _cancel(self, job_id: str) -> None:
        try:
            self._client.cancel(job_id)
        except (InvalidRequest, CannotCancel) as error:
            # It ended meanwhile, or a cancellation without an answer had its effect.
            self.refused[error.code] += 1

    def _call(self, do: str, entity: str, **options: Any) -> None:
        number = next(self._numbers)
        payload = {"number": number, "seconds": JOB_S, **options.pop("payload", {})}
        if not entity and do == "sleep":
            options |= self._chance.choice(
                [{}, {}, {"priority": URGENT}, {"delay": self._chance.choice(DELAYS_S)}]
            )
        pair = ("customer", entity) if entity else None
        if options.pop("to_cancel", False):
            self._to_cancel.add(number)
        job_id = self.asked(lambda: self._client.call(do, payload, entity=pair, **options))
        if job_id is None:
            return
        if entity:
            self.keys[job_id] = entity
        if do == "sleep" and number not in self._ended:
            self._open[number] = entity

    def _call_stuck(self, call: Stuck) -> None:
        entity = f"{self._chance.randrange(ENTITIES)}" if self._chance.random() < 0.5 else ""
        options: dict[str, Any] = {"payload": {"way": call.way}}
        options |= {"timeout": TIMEOUT_S} if call.way == "timeout" else {"to_cancel": True}
        self._call(call.do, entity, **options)


class Edits(Loop):
    """Changes of a tree, of which the deployment hears by requests or at the next walk."""

    def __init__(self, deployment: Deployment, chance: random.Random) -> None:
        super().__init__(deployment, chance)
        self.tree = Tree(deployment.files, chance)
        self.tree.fill(FILES)
        self.changes = 0

    def step(self) -> float:
        for submission in self.tree.change():
            self.submit(submission)
        self.changes += 1
        if self.changes % 4 == 1:
            self.asked(lambda: self._client.index(self.tree.root, allow_empty=True))
        return self._chance.uniform(*EDIT_PAUSE_S)

    def submit(self, submission: Submission) -> None:
        payload: dict[str, Any] = submission["payload"]  # type: ignore[assignment]
        if submission["item_type"] == "rename":
            self.asked(lambda: self._client.rename(payload["old_path"], payload["new_path"]))
            return
        path = payload.get("file_path") or payload["folder_path"]
        if submission["op"] == "delete":
            self.asked(lambda: self._client.remove(path))
        else:
            self.asked(lambda: self._client.index(path))

    def index_all(self, patience_s: float) -> str:
        """Index the whole tree until nothing is left to be tried again; return what went wrong."""
        options: dict[str, Any] = {"allow_empty": True, "retry_failed": True}
        try:
            receipt = self.persist(lambda: self._client.index(self.tree.root, **options))
            self.acknowledged.append(receipt.job_id)
            job = self.persist(lambda: self._client.wait(receipt.job_id, run=receipt.run, timeout=patience_s))
        except PenstockError as error:
            return f"the last index: {error}"
        return "" if job.status == "done" else f"the last index is {job.status}: {job.error_message}"
