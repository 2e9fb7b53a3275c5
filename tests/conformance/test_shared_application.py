"""One ``Penstock`` for all threads of a process and for ``asyncio.to_thread``, on every engine."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.queue.job import JobQuery, Status
from tests.conformance.conftest import ENGINES
from tests.servers.stores import given_back, store_url

THREADS = 6
ROUNDS = 4
PATIENCE = 120.0


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    settings = config.load(
        environ={},
        url=store_url(request.param, tmp_path),
        state_dir=tmp_path / "state",
        embedder="hashing",
        sqlite_synchronous="NORMAL",
    )
    with Penstock(settings=settings) as app:
        app.function("double")(_double)
        yield app
    given_back(tmp_path)


def _double(payload: dict[str, Any], _context: Any) -> int:
    return 2 * int(payload["n"])


def files(place: Path) -> list[Path]:
    made = [place / "docs" / f"{number}.md" for number in range(THREADS)]
    made[0].parent.mkdir()
    for number, path in enumerate(made):
        path.write_text(f"# Mill {number}\n\nThe wheel of mill number {number} turns in the river.\n")
    return made


def use(app: Penstock, number: int, document: Path) -> list[int]:
    """Run all calls of a program and return the results."""
    answers = []
    indexing = app.index(document)
    for call in range(ROUNDS):
        receipt = app.call("double", {"n": 100 * number + call}, entity=("mill", str(call)))
        task = app.tasks.enqueue_task("mill", str(number), "double", {"n": call})
        note = app.submit(item_type="content", op="ingest", payload={"content": f"note {number} {call}"})
        app.stats()
        app.search("wheel river")
        app.tasks.get_pending_tasks(limit=10)
        app.tasks.get_task(task)
        app.jobs(limit=10)
        app.details(note.job_id)
        app.wait(receipt.job_id, run=receipt.run, timeout=PATIENCE)
        answers.append(app.result(receipt.job_id))
        assert Status.DONE is app.wait(task, timeout=PATIENCE).status
        app.wait(note.job_id, timeout=PATIENCE)
        app.documents.overview()
    app.wait(indexing.job_id, timeout=PATIENCE)
    assert app.documents.why(document)
    app.cancel(app.call("double", {"n": 1}, delay=3_600).job_id)
    return answers


def check(app: Penstock, answers: list[list[int]]) -> None:
    assert [[2 * (100 * n + call) for call in range(ROUNDS)] for n in range(THREADS)] == answers
    counted = app.queue.count(JobQuery(), by=("status",))
    # A call, a task and a note each round; the index; and the call that was cancelled.
    assert {(Status.DONE,): THREADS * (3 * ROUNDS + 1), (Status.CANCELLED,): THREADS} == counted
    hits = app.search("wheel of a mill in the river", limit=100)
    assert {f"{number}.md" for number in range(THREADS)} == {
        Path(hit.path).name for hit in hits if "docs" in hit.path
    }


def test_threads_share_one_application(app: Penstock, tmp_path: Path) -> None:
    documents = files(tmp_path)
    with app.worker_thread(), ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(lambda n: use(app, n, documents[n]), range(THREADS)))

    check(app, answers)


def test_asyncio_shares_one_application_by_to_thread(app: Penstock, tmp_path: Path) -> None:
    documents = files(tmp_path)

    async def everything() -> list[list[int]]:
        return await asyncio.gather(
            *(asyncio.to_thread(use, app, number, documents[number]) for number in range(THREADS))
        )

    with app.worker_thread():
        check(app, asyncio.run(everything()))


def test_what_is_opened_when_first_asked_for_is_opened_once(app: Penstock) -> None:
    start = threading.Barrier(THREADS)

    def ask(look: Callable[[Penstock], object]) -> set[int]:
        def one(_: int) -> int:
            start.wait(PATIENCE)
            return id(look(app))

        with ThreadPoolExecutor(THREADS) as pool:
            return set(pool.map(one, range(THREADS)))

    for look in (lambda app: app._assembly.search, lambda app: app.documents, lambda app: app.verifier):
        assert 1 == len(ask(look))


def test_a_process_forked_while_threads_are_in_a_call_can_go_on(app: Penstock) -> None:
    """A forked child has the locks of the parent's threads, but not the threads to release them."""
    held, release = threading.Event(), threading.Event()

    def open_slowly() -> None:
        with app._assembly._making:
            held.set()
            release.wait(PATIENCE)

    thread = threading.Thread(target=open_slowly)
    thread.start()
    held.wait(PATIENCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        found = -1
        try:
            app.submit(item_type="content", op="ingest", payload={"content": "from the child"})
            found = len(app.search("anything")) + len(app.jobs())
        finally:
            os._exit(0 if found == 1 else 1)
    status = os.waitpid(child, 0)[1]
    release.set()
    thread.join()

    assert 0 == os.waitstatus_to_exitcode(status)
