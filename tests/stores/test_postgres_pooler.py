"""PostgreSQL behind PgBouncer in transaction mode, with and without the setting for poolers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.clock import new_ids
from penstock.errors import PoolerNotSet
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, JobQuery, Status
from penstock.queue.postgres.queue import PostgresQueue
from tests.servers import pgbouncer, postgres
from tests.stores.new_jobs import new
from tests.worker.test_outages import outlast, working
from tests.worker.worker_processes import WorkerHost

pytestmark = pgbouncer.needed
FEW = {"default_pool_size": "3"}
"""Sessions of the server: fewer than clients, so that every session serves several of them."""
THREADS = 6


@pytest.fixture(scope="module", params=[{}, pgbouncer.ACCEPTING_OPTIONS], ids=["usual", "accepting options"])
def pooler(request: pytest.FixtureRequest) -> Iterator[pgbouncer.PgBouncer]:
    with pgbouncer.in_front(postgres.shared_url(), **FEW, **request.param) as started:
        yield started


@pytest.fixture
def url(pooler: pgbouncer.PgBouncer) -> str:
    return f"{pooler.url}?schema=pooled_{new_ids(1)[0]}"


def test_without_the_setting_a_pooler_is_refused_before_anything_is_written(url: str) -> None:
    with pytest.raises(PoolerNotSet) as refused:
        PostgresQueue(url)
    assert ("ERR_POOLER_NOT_SET", True) == (refused.value.code, "\n" not in refused.value.message)
    assert "PENSTOCK_POSTGRES_POOLER=true" in refused.value.remedy
    # Neither the schema nor a table was made.
    with pytest.raises(PoolerNotSet):
        PostgresQueue(url)


@pytest.mark.parametrize("command", [["queue", "stats"], ["worker", "--until-idle"]])
def test_a_command_without_the_setting_names_it_in_one_line(
    url: str, command: list[str], tmp_path: Path
) -> None:
    environ = os.environ | {"PENSTOCK_URL": url, "PENSTOCK_STATE": str(tmp_path)}
    asked = [sys.executable, "-m", "penstock", *command]

    ran = subprocess.run(asked, env=environ, capture_output=True, text=True, cwd=tmp_path)

    assert 7 == ran.returncode
    assert "ERR_POOLER_NOT_SET" in ran.stderr
    assert "PENSTOCK_POSTGRES_POOLER=true" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_with_the_setting_many_clients_share_a_few_sessions(url: str) -> None:
    queues = [PostgresQueue(url, pooled=True) for _ in range(THREADS)]

    def work(number: int) -> int:
        queue, done = queues[number], 0
        queue.add([new(1_000 * number + each) for each in range(20)])
        while claims := queue.claim(ClaimRequest(f"w{number}", 7)):
            done += len(queue.settle([transitions.done(claim) for claim in claims]))
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        done = sum(pool.map(work, range(THREADS)))

    assert 20 * THREADS == done == queues[0].count(JobQuery(statuses=frozenset({Status.DONE})))[()]
    for queue in queues:
        queue.close()


def test_with_the_setting_documents_are_indexed_and_found(url: str, tmp_path: Path) -> None:
    path = tmp_path / "mill.md"
    path.write_text("The wheel of the mill turns slowly.")
    settings = config.load(
        {}, url=url, state_dir=tmp_path / "state", postgres_pooler=True, embedder="hashing"
    )
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            receipt = app.index(str(path))
            assert "done" == app.wait(receipt.job_id, timeout=60).status
        assert [str(path)] == [hit.path for hit in app.search("wheel")]


def test_a_worker_outlasts_the_loss_of_its_pooler(
    url: str, pooler: pgbouncer.PgBouncer, tmp_path: Path
) -> None:
    direct = url.replace(
        f":{pooler.port}/", f":{postgres.shared_url().rpartition(':')[2].partition('/')[0]}/"
    )
    host = WorkerHost("postgres", tmp_path, direct)
    with working(host, url=url, pooled=1) as worker:
        outlast(host, worker, pooler.killed(), "cannot be reached")
    host.close()
