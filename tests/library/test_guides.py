"""The code in the README and in the guides runs."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from penstock import Penstock
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Status
from tests.servers import postgres


def test_the_readme_runs(run_page: Any, capsys: pytest.CaptureFixture[str]):
    names = run_page("README.md")

    assert f"{names['answer'].job_id} pending 0\n" == capsys.readouterr().out


def test_the_transaction_of_the_postgresql_guide_runs(run_page: Any):
    place_order = run_page("docs/guides/postgresql.md")["place_order"]
    url = postgres.fresh_store()
    with Penstock(url) as app, psycopg.connect(url, autocommit=True) as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        place_order(app, database, 7)
        with pytest.raises(psycopg.errors.UniqueViolation):
            place_order(app, database, 7)

        assert [{"content": "order 7"}] == [job.payload for job in app.jobs()]


def test_the_first_steps_run(run_page: Any, capsys: pytest.CaptureFixture[str]):
    run_page("docs/guides/first-steps.md")
    told = capsys.readouterr().out

    assert told.startswith("Job queued job_")
    assert "ERR_UNSUPPORTED_OP" in told
    assert "something has to do the work, too" in told
    with Penstock("sqlite:///queue.db") as app:
        rivers = [job for job in app.jobs() if job.payload.get("file_path") == "/srv/papers/rivers.pdf"]
        assert 1 == len(rivers)


def test_the_function_guide_runs(run_page: Any, capsys: pytest.CaptureFixture[str]):
    names = run_page("docs/guides/functions.md")
    app: Penstock = names["app"]

    assert "there is no customer 'c9'" in capsys.readouterr().out
    # The guide's own program has finished the only task.
    assert [] == app.tasks.get_pending_tasks()
    assert "COMPLETED" == app.tasks.get_task(names["task_id"])["status"]
    app.close()


def test_the_custom_worker_works(run_page: Any, capsys: pytest.CaptureFixture[str]):
    names = run_page("docs/guides/custom-worker.md")
    app: Penstock = names["app"]
    stop = threading.Event()
    thread = threading.Thread(target=names["work"], args=(stop,))
    thread.start()
    with Penstock("sqlite:///queue.db") as other:
        receipt = other.submit(item_type="content", op="ingest", payload={"content": "The mill runs."})
        ended = other.wait(receipt.job_id, run=receipt.run, timeout=120)
    stop.set()
    thread.join()

    assert Status.DONE is ended.status
    assert "content ingest {'content': 'The mill runs.'}" in capsys.readouterr().out
    assert ["worker-1"] == [worker.worker_id for worker in app.stats().workers]
    app.close()


def test_the_custom_worker_expands_renews_and_reaps(run_page: Any):
    names = run_page("docs/guides/custom-worker.md")
    app: Penstock = names["app"]
    folder = app.submit(item_type="folder", op="ingest", payload={"folder_path": "/docs"})
    (claim,) = app.queue.claim(ClaimRequest("w1"))

    assert names["still_mine"](claim, 1, 2)
    assert {"done": 1, "total": 2} == app.job(folder.job_id).progress
    app.queue.settle([names["expand"](claim, ["/docs/a", "/docs/b"])])
    assert not names["still_mine"](claim, 2, 2)
    names["upkeep"]()
    app.queue.settle([transitions.done(child) for child in app.queue.claim(ClaimRequest("w1", 10))])
    assert Status.DONE is app.job(folder.job_id).status
    app.close()
