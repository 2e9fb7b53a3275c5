"""The library: opening by URL, waiting, joining a transaction, and the cost of the import."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Penstock, Receipt, config
from penstock.errors import InvalidRequest, InvalidSetting, JobNotFound, UnknownScheme
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Status
from penstock.queue.jsonl.queue import JsonlQueue
from penstock.queue.memory.queue import MemoryQueue
from penstock.queue.sqlite.queue import SqliteQueue
from tests.servers.stores import DURABLE, given_back, store_url


@pytest.fixture(params=["memory", *DURABLE])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    url = store_url(request.param, tmp_path)
    with Penstock(url, state_dir=tmp_path) as opened:
        yield opened
    given_back(tmp_path)


def note(app: Penstock, text: str = "The mill runs.", **more: Any) -> Receipt:
    return app.submit(item_type="content", op="ingest", payload={"content": text}, **more)


def finish(app: Penstock) -> None:
    app.queue.settle([transitions.done(claim) for claim in app.queue.claim(ClaimRequest("w1", 10))])


def meanwhile(work: Callable[[], object]) -> threading.Timer:
    """Call a function shortly after, while the test waits."""
    timer = threading.Timer(0.05, work)
    timer.start()
    return timer


# Opening.


def test_the_url_chooses_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    urls = {
        "memory://": MemoryQueue,
        "sqlite:///rel.db": SqliteQueue,
        f"sqlite:///{tmp_path}/abs.db": SqliteQueue,
        "jsonl://rel": JsonlQueue,
        f"jsonl://{tmp_path}/abs": JsonlQueue,
    }
    for url, engine in urls.items():
        with Penstock(url) as app:
            assert engine.__name__ == type(app.queue).__name__
            note(app)
    assert {"rel.db", "abs.db", "rel", "abs"} <= {path.name for path in tmp_path.iterdir()}


def test_a_relative_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Penstock("sqlite:///queue.db") as app:
        monkeypatch.chdir(tmp_path / "elsewhere")
        note(app)
        finish(app)

    assert [] == list((tmp_path / "elsewhere").iterdir())


def test_by_default_the_queue_is_a_private_file_in_the_state_directory(tmp_path: Path):
    with Penstock(state_dir=tmp_path / "new" / "state") as app:
        note(app)

    assert (tmp_path / "new" / "state" / "penstock.db").is_file()
    assert 0o700 == stat.S_IMODE((tmp_path / "new" / "state").stat().st_mode)


def test_the_environment_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_URL", f"jsonl://{tmp_path}/from-environment")
    with Penstock() as app:
        assert isinstance(app.queue, JsonlQueue)


def test_settings_and_a_url_are_one_too_many():
    settings = config.load({}, url="memory://")

    with Penstock(settings=settings) as app:
        assert settings is app.settings
    with pytest.raises(InvalidSetting):
        Penstock("memory://", settings=settings)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlit:///x.db", "file:///x.db"])
def test_an_unknown_scheme_is_refused_with_those_there_are(url: str):
    with pytest.raises(UnknownScheme) as refusal:
        Penstock(url)
    assert "postgresql://…, redis://HOST, jsonl://DIRECTORY or memory://" in refusal.value.remedy


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://queue.db",
        "sqlite:///",
        "sqlite:///dir/",
        "sqlite:///:memory:",
        "sqlite:///~nobody-of-that-name/q.db",
        "jsonl://",
        "memory://shared",
        "queue.db",
    ],
)
def test_a_url_that_names_no_place_is_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidSetting):
        Penstock(url)
    assert [] == list(tmp_path.iterdir())


def test_what_was_submitted_is_there_after_reopening(tmp_path: Path):
    for url in (f"sqlite:///{tmp_path}/queue.db", f"jsonl://{tmp_path}"):
        with Penstock(url) as app:
            receipt = note(app)
        with Penstock(url) as app:
            assert Status.PENDING is app.job(receipt.job_id).status


# Waiting.


def test_wait_returns_when_the_run_has_ended(app: Penstock):
    receipt = note(app)
    timer = meanwhile(lambda: finish(app))
    job = app.wait(receipt.job_id, run=receipt.run, timeout=120)
    timer.join()

    assert Status.DONE is job.status


def test_wait_gives_up_in_time(app: Penstock):
    receipt = note(app)

    with pytest.raises(TimeoutError, match=r"still pending after 0\.05 seconds"):
        app.wait(receipt.job_id, timeout=0.05)


def test_wait_for_a_run_does_not_wait_for_its_follow_up(app: Penstock):
    first = note(app)
    claims = app.queue.claim(ClaimRequest("w1"))
    second = note(app)
    app.queue.settle([transitions.done(claim) for claim in claims])

    assert Status.PENDING is app.wait(first.job_id, run=first.run, timeout=0).status
    with pytest.raises(TimeoutError):
        app.wait(second.job_id, run=second.run, timeout=0)
    with pytest.raises(TimeoutError):
        app.wait(first.job_id, timeout=0)
    finish(app)
    assert Status.DONE is app.wait(second.job_id, run=second.run, timeout=0).status


def test_wait_for_an_unknown_job_is_refused(app: Penstock):
    with pytest.raises(JobNotFound):
        app.wait("job_unknown")


def test_wait_does_not_spin_while_the_queue_is_busy():
    app = Penstock("memory://")
    receipt = note(app, delay=60)
    asked = 0
    get = app.queue.get

    def counting(queue_id: str) -> Any:
        nonlocal asked
        asked += 1
        return get(queue_id)

    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            app.pause(tenant_id="other")

    app.queue.get = counting  # type: ignore[method-assign]
    thread = threading.Thread(target=busy)
    thread.start()
    with pytest.raises(TimeoutError):
        app.wait(receipt.job_id, timeout=0.3)
    stop.set()
    thread.join()

    assert asked <= 0.3 / 0.01 + 3


# Joining a transaction.


@pytest.mark.parametrize("commit", [True, False])
def test_a_job_joins_the_callers_transaction(tmp_path: Path, commit: bool):
    with Penstock(f"sqlite:///{tmp_path}/queue.db") as app:
        note(app)
        own = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
        own.execute("CREATE TABLE orders (number INTEGER)")
        own.execute("BEGIN IMMEDIATE")
        own.execute("INSERT INTO orders VALUES (1)")
        receipt = note(app, connection=own)
        assert (False, None) == (receipt.dedupe_hit, receipt.queue_position)
        own.execute("COMMIT" if commit else "ROLLBACK")

        assert (2 if commit else 1) == len(app.jobs())
        assert [(int(commit),)] == own.execute("SELECT count(*) FROM orders").fetchall()
        own.close()


@pytest.mark.parametrize("place", ["memory://", "jsonl://"])
def test_engines_without_transactions_refuse_to_join_one(tmp_path: Path, place: str):
    own = sqlite3.connect(":memory:")
    with Penstock(place if place == "memory://" else f"{place}{tmp_path}") as app:
        with pytest.raises(InvalidRequest):
            note(app, connection=own)
        assert [] == app.jobs()
    own.close()


# The package.


def modules_after(code: str) -> set[str]:
    listing = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_import_penstock_imports_nothing_else_of_ours():
    ours = {name for name in modules_after("import penstock") if name.startswith("penstock")}

    assert {"penstock"} == ours


def test_an_engine_is_imported_only_when_its_url_asks_for_it():
    modules = modules_after("from penstock import Penstock\nPenstock('memory://')")

    assert "penstock.queue.memory.queue" in modules
    assert not {"sqlite3", "penstock.queue.sqlite.queue", "penstock.queue.jsonl.queue", "click"} & modules


def test_a_worker_imports_nothing_for_endpoints_and_graphs_that_it_may_not_have():
    modules = modules_after("import penstock.worker.pool")

    assert "penstock.handlers.phases" in modules
    assert not {"http.client", "ssl", "penstock.pipeline.graph.prose"} & modules


def test_the_package_offers_what_it_lists():
    listed = {"Penstock", "Client", "AsyncClient", "Receipt", "PenstockError"}
    assert listed == set(penstock.__all__) <= set(dir(penstock))
    assert all(getattr(penstock, name) for name in penstock.__all__)
    with pytest.raises(AttributeError):
        penstock.Penstok  # noqa: B018 - the access is the test
