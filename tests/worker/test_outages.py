"""No state of a store ends a worker: it waits, says why and what to do, and goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Penstock, config
from penstock.clock import now
from penstock.errors import (
    OUTAGES,
    InvalidText,
    PenstockError,
    StateDamaged,
    StatementRefused,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    StoreVanished,
)
from penstock.queue.job import Status
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.state_directory import workers_directory
from penstock.store_outage import StoreOutage, clear_outage, read_outage, write_outage
from penstock.worker.outage import OUTAGE, OutageLog, OutageRetry
from penstock.worker.upkeep import AFTER_OUTAGE_S, Duties
from tests.power_loss.recording import COMPILER
from tests.servers import postgres, states
from tests.servers import redis as redis_servers
from tests.servers.stores import ON_FILES, given_back
from tests.stores.test_driver_errors import RAISING, subclasses
from tests.worker.faults import Faults
from tests.worker.worker_processes import Worker, WorkerHost, until

OPTIONS: dict[str, Any] = {"processes": 1, "upkeep_s": 0.2}


@contextmanager
def working(host: WorkerHost, **options: Any) -> Iterator[Worker]:
    """A worker at work, that has neither ended nor lost a process by the end of the block."""
    worker = host.worker(**OPTIONS, **options)
    host.ended(host.put())
    children = worker.children()
    yield worker
    assert (None, children) == (worker.process.poll(), worker.children()), worker.log
    assert "Traceback" not in worker.log


def outlast(host: WorkerHost, worker: Worker, fault: AbstractContextManager[object], *told: str) -> None:
    """Check that the worker says what is wrong during a fault, and ends the job that waits afterwards."""
    gate = host.place / f"gate {len(worker.log)}"
    waiting = host.put("wait_for", payload={"there": str(gate)})
    host.began(waiting)
    before = len(worker.log)
    with fault:
        gate.touch()
        until(lambda: all(words in worker.log[before:] for words in told))
    until(lambda: _ended(host, waiting))
    assert Status.DONE is host.job(waiting).status
    assert Status.DONE is host.ended(host.put()).status


def _ended(host: WorkerHost, job_id: str) -> bool:
    with suppress(*OUTAGES):
        return host.job(job_id).ended
    return False


# PostgreSQL.


@contextmanager
def refusing(url: str, state: str) -> Iterator[None]:
    """Let the server refuse every write to a job with this SQLSTATE."""
    with psycopg.connect(url, autocommit=True) as own:
        own.execute("DELETE FROM refused")
        own.execute("INSERT INTO refused VALUES (%s)", (state,))
        yield
        own.execute("DELETE FROM refused")


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[WorkerHost]:
    host = WorkerHost("postgres", tmp_path, postgres.fresh_store())
    with psycopg.connect(host.url, autocommit=True) as own:
        found = own.execute("SELECT current_schema()").fetchone()
        assert found is not None
        own.execute(RAISING.format(schema=f'"{found[0]}"').encode())
    yield host
    host.close()


@pytest.mark.parametrize(
    "refusals",
    [
        pytest.param(
            {"25006": "Point its URL", "42P05": "PENSTOCK_POSTGRES_POOLER=true", "22012": "refuses a value"},
            id="some",
        ),
        pytest.param(
            {
                "25P03": "idle in its transaction",
                "25P04": "transaction_timeout",
                "XX000": "internal error",
                "57P01": "cannot be reached",
                "53100": "no space left",
                "42501": "does not let this user",
                "26000": "PENSTOCK_POSTGRES_POOLER=true",
                "42601": "ERR_STATEMENT_REFUSED",
                "54000": "ERR_INVALID_TEXT",
            },
            id="more",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_server_that_refuses_writes_for_a_while_ends_no_worker(
    refused: WorkerHost, refusals: dict[str, str]
) -> None:
    with working(refused) as worker:
        for state, told in refusals.items():
            outlast(refused, worker, refusing(refused.url, state), "the store is unavailable", told)


@pytest.mark.long
def test_a_switchover_a_restart_and_ended_sessions_end_no_worker(tmp_path: Path) -> None:
    with postgres.own_server() as server:
        host = WorkerHost("postgres", tmp_path, server.url())
        with working(host) as worker:
            read_only = states.with_setting(server, "default_transaction_read_only", "on")
            outlast(host, worker, read_only, "can only be read", "Point its URL")
            for _ in range(3):
                assert states.end_sessions(server.url())
                assert Status.DONE is host.ended(host.put()).status
            server.stop("fast")
            until(lambda: "cannot be reached" in worker.log)
            server.start()
            until(lambda: "the store is available again" in worker.log)
            assert Status.DONE is host.ended(host.put()).status
        host.close()


# Redis.


def test_a_redis_server_that_cannot_be_written_for_a_while_ends_no_worker(tmp_path: Path) -> None:
    with redis_servers.own_server(tmp_path / "redis") as server:
        host = WorkerHost("redis", tmp_path, server.url)
        with working(host) as worker:
            replica = states.told(server.url, f"REPLICAOF 127.0.0.1 {server.port + 1}", "REPLICAOF NO ONE")
            outlast(host, worker, replica, "is a replica that cannot be written", "Point the URL")
            outlast(
                host,
                worker,
                states.another_password(server.url),
                "refuses the login",
                "Check user and password",
            )
        host.close()


@pytest.mark.long
def test_other_states_of_a_redis_server_end_no_worker(tmp_path: Path) -> None:
    with redis_servers.own_server(tmp_path / "redis") as server:
        host = WorkerHost("redis", tmp_path, server.url)
        with working(host) as worker:
            few = "CONFIG SET min-replicas-to-write"
            alone = states.told(server.url, f"{few} 1", f"{few} 0")
            outlast(host, worker, alone, "lost its primary or its replicas")
            outlast(host, worker, states.busy(server.url), "is busy with another script", "SCRIPT KILL")
        host.close()


# Files.


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler to make faults with")
@pytest.mark.parametrize("engine", ON_FILES)
def test_a_disk_that_is_full_or_read_only_for_a_while_ends_no_worker(engine: str, tmp_path: Path) -> None:
    host = WorkerHost(engine, tmp_path)
    (tmp_path / "machine").mkdir()
    faults = Faults(tmp_path / "machine", f"{tmp_path}/queue")
    host.environment |= faults.environment
    with working(host) as worker:
        outlast(host, worker, faults.on(disk_full=True), "the store is unavailable")
        outlast(host, worker, faults.on(read_only=True), "the store is unavailable")
    host.close()
    given_back(tmp_path)


# Each loop, with each error.


ALL_KINDS = sorted({below for kind in OUTAGE for below in subclasses(kind)}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_duty_that_meets_an_outage_is_tried_again_soon(kind: type[PenstockError]) -> None:
    ran: list[float] = []

    def duty() -> None:
        ran.append(0.0)
        if len(ran) == 1:
            raise kind("it failed")

    duties = Duties()
    duties.add(3_600.0, duty)
    for moment in (1.0, 1.0 + AFTER_OUTAGE_S / 2, 1.0 + AFTER_OUTAGE_S, 1_000.0):
        duties.run_due(moment)
    assert 2 == len(ran)


@pytest.mark.parametrize("kind", [StoreVanished, StateDamaged])
def test_a_lost_or_damaged_file_ends_the_worker(kind: type[StoreError]) -> None:
    def duty() -> None:
        raise kind("it is gone")

    duties = Duties()
    duties.add(1.0, duty)
    with pytest.raises(kind):
        duties.run_due(1.0)
    with pytest.raises(kind):
        OutageRetry(lambda: False)(duty)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_call_of_a_process_is_repeated_until_the_outage_is_over(
    kind: type[PenstockError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutageRetry, "_sleep", staticmethod(lambda _: None))
    told: list[object] = []
    errors = iter([kind("it failed"), kind("it failed")])

    def call() -> None:
        for error in errors:
            raise error

    OutageRetry(lambda: False, told.append)(call)

    assert ([kind, kind], None) == ([type(each) for each in told[:2]], told[2])


def test_an_outage_has_one_line_for_each_reason_and_one_for_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config.load({}, url=f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path)
    directory = workers_directory(settings.state_dir, settings.store)
    directory.mkdir(parents=True)
    outages = OutageLog(directory)

    def fail(error: StoreError) -> None:
        raise error

    for _ in range(10):
        for name in ("renew", "reap"):
            outages.attempt(partial(fail, StoreReadOnly("it can only be read")), name)
    outages.attempt(partial(fail, StoreUnavailable("it is away")), "report")
    outage = read_outage(settings.state_dir, settings.store, now())
    for name in ("renew", "reap", "report"):
        outages.attempt(lambda: None, name)

    begin, other, end = [record.message for record in caplog.records]
    assert ("it can only be read (ERR_STORE_READ_ONLY)" in begin, "it is away" in other) == (True, True)
    assert "the store is available again" in end
    assert outage is not None
    assert ("ERR_STORE_UNAVAILABLE", os.getpid()) == (outage.code, outage.pid)
    assert read_outage(settings.state_dir, settings.store, now()) is None


def test_an_outage_is_in_the_statistics_until_its_worker_is_gone_for_long(tmp_path: Path) -> None:
    with Penstock(f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path) as app:
        directory = workers_directory(app.settings.state_dir, app.settings.store)
        directory.mkdir(parents=True, exist_ok=True)
        told = {"code": "ERR_POOLER_NOT_SET", "message": "it is pooled", "remedy": "Set the setting."}
        write_outage(directory, StoreOutage(**told, since=now(), pid=7))

        (warning,) = app.stats().warnings

        assert "(process 7) waits for the store: it is pooled. Set the setting." in warning
        later = now() + timedelta(minutes=10)
        assert read_outage(app.settings.state_dir, app.settings.store, later) is None
        clear_outage(directory)
        assert [] == app.stats().warnings


def test_an_outage_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "workers.outage" / "in the way").mkdir(parents=True)
    told = {"code": "ERR_DISK_FULL", "message": "the disk is full", "remedy": "Free some space."}

    write_outage(tmp_path / "workers", StoreOutage(**told, since=now(), pid=7))

    assert ["workers.outage"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_worker_in_a_thread_waits_for_its_store(
    kind: type[PenstockError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutageRetry, "_sleep", staticmethod(lambda _: None))
    with Penstock(f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path) as app:

        @app.function()
        def grind(payload: dict[str, Any]) -> str:
            return "flour"

        # A result that is refused alone fails its job, and holds up no other.
        for name in ("claim",) if kind in (StatementRefused, InvalidText) else ("claim", "settle"):
            fail_twice(monkeypatch, SqliteQueue, name, kind)
        with app.worker_thread():
            receipt = grind.call({})
            assert "done" == app.wait(receipt.job_id, timeout=60).status


def fail_twice(monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str, kind: type[Exception]) -> None:
    """Let a method raise an error in its first two calls."""
    real, errors = getattr(owner, name), iter([kind("it failed"), kind("it failed")])

    def method(*given: Any, **named: Any) -> Any:
        for error in errors:
            raise error
        return real(*given, **named)

    monkeypatch.setattr(owner, name, method)
