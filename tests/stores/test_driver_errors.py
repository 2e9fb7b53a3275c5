"""Every error that a driver can raise is one of Penstock's, and none of them ends a worker."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from penstock import errors
from penstock.database.postgres import translate_error as of_postgres
from penstock.database.sqlite import translate_error as of_sqlite
from penstock.errors import PenstockError
from penstock.queue import transitions
from penstock.queue.job import Beat, ClaimRequest
from penstock.queue.postgres.queue import PostgresQueue
from penstock.queue.redis.queue import RedisQueue
from penstock.queue.redis.server import translate_error as of_redis
from penstock.worker.outage import OUTAGE
from tests.servers import postgres
from tests.servers.redis import queue_url
from tests.stores.new_jobs import new

LASTING = (errors.StoreVanished, errors.StateDamaged)
"""Only a file that was lost or damaged ends a worker."""


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)


def raised_by(module: Any) -> list[type[Exception]]:
    """All classes of exceptions of a module that are its own."""
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == module.__name__
    ]


OF_PSYCOPG = sorted(set(subclasses(psycopg.Error)), key=lambda kind: (kind.__name__, kind.__module__))
OF_REDIS = raised_by(redis.exceptions)
STATES = sorted({kind.sqlstate for kind in OF_PSYCOPG if getattr(kind, "sqlstate", None)})
OF_SQLITE = sorted(
    (name, code)
    for name, code in vars(sqlite3).items()
    if name.startswith("SQLITE_") and isinstance(code, int) and 0 < code < 27
)


def is_answered(error: PenstockError | None) -> bool:
    """True if a worker waits for the end of the error."""
    return isinstance(error, OUTAGE) and not isinstance(error, LASTING)


def test_the_drivers_have_as_many_classes_as_they_should() -> None:
    """The walk finds the classes: without any it would find no fault either."""
    assert (200 < len(OF_PSYCOPG), 200 < len(STATES), 30 < len(OF_REDIS)) == (True, True, True)
    assert {"25006", "25P03", "25P04", "XX000", "42P05", "57P01"} <= set(STATES)


@pytest.mark.parametrize("kind", OF_PSYCOPG, ids=lambda kind: f"{kind.__name__}-{kind.sqlstate}")
def test_every_class_of_psycopg_is_translated(kind: type[psycopg.Error]) -> None:
    error = of_postgres(kind("it failed"), "postgresql://host/db")

    assert is_answered(error), error
    assert "it failed" in error.message
    assert error.remedy


@pytest.mark.parametrize("kind", OF_REDIS, ids=lambda kind: kind.__name__)
def test_every_class_of_the_redis_driver_is_translated(kind: type[Exception]) -> None:
    try:
        raised = kind("it failed")
    except (TypeError, ValueError, IndexError):
        raised = kind("3999 127.0.0.1:6381")

    error = of_redis(raised, "redis://h:1/0")

    assert is_answered(error), error
    assert error.remedy


@pytest.mark.parametrize(("name", "code"), OF_SQLITE)
def test_every_code_of_sqlite_is_translated(name: str, code: int) -> None:
    raised = sqlite3.DatabaseError("it failed")
    raised.sqlite_errorcode, raised.sqlite_errorname = code, name

    error = of_sqlite(raised, Path("queue.db"))

    damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    assert isinstance(error, errors.StateDamaged) if damaged else is_answered(error), error


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("READONLY You can't write against a read only replica.", errors.StoreReadOnly),
        ("NOAUTH Authentication required.", errors.StoreDenied),
        ("NOPERM this user has no permissions to run the 'evalsha' command", errors.StoreDenied),
        ("CLUSTERDOWN The cluster is down", errors.StoreUnavailable),
        ("MASTERDOWN Link with MASTER is down", errors.StoreUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", errors.StoreUnavailable),
        ("EXECABORT Transaction discarded because of previous errors.", errors.StoreUnavailable),
        ("max number of clients reached", errors.StoreUnavailable),
        ("UNKILLABLE Sorry the script already executed write commands", errors.StoreUnavailable),
        ("ERR user_script:12: attempt to index a nil value", errors.StatementRefused),
    ],
)
def test_states_of_a_redis_server_are_outages_and_errors_of_scripts_are_not(
    text: str, kind: type[PenstockError]
) -> None:
    assert kind is type(of_redis(redis.exceptions.ResponseError(text), "redis://h:1/0"))


# The same errors raised by a server, in the middle of each call.


RAISING = """
CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE wanted text := (SELECT state FROM {schema}.refused);
BEGIN
    IF wanted IS NOT NULL THEN
        RAISE EXCEPTION 'it failed' USING ERRCODE = wanted;
    END IF;
    RETURN NEW;
END $$;
CREATE TABLE {schema}.refused (state text);
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {schema}.unified_queue
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
"""


class Refusing:
    """A queue whose server refuses each write to a row with a chosen SQLSTATE."""

    def __init__(self) -> None:
        url = postgres.fresh_store()
        self.queue = PostgresQueue(url)
        self._own = psycopg.connect(url, autocommit=True)
        found = self._own.execute("SELECT current_schema()").fetchone()
        assert found is not None
        self._own.execute(RAISING.format(schema=f'"{found[0]}"').encode())
        self.queue.add([new(number) for number in range(20)])
        self.claims = self.queue.claim(ClaimRequest("w", 10))
        self._numbers = iter(range(1_000, 10_000))

    def set(self, state: str | None) -> None:
        self._own.execute("DELETE FROM refused")
        self._own.execute("INSERT INTO refused VALUES (%s)", (state,))

    def calls(self) -> Sequence[Callable[[], object]]:
        claim, queue = self.claims[0], self.queue
        beat = Beat(claim.queue_id, claim.claim_number, timedelta(seconds=9))
        alike = [new(next(self._numbers)) for _ in range(3)]
        return [
            lambda: queue.add([new(next(self._numbers))]),
            lambda: queue.add(alike),
            lambda: queue.claim(ClaimRequest("w", 1)),
            lambda: queue.settle([transitions.done(claim)]),
            lambda: queue.exchange([transitions.done(claim)], ClaimRequest("w", 1)),
            lambda: queue.renew([beat]),
        ]

    def close(self) -> None:
        self.queue.close()
        self._own.close()


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    opened = Refusing()
    yield opened
    opened.close()


def refuse_all(refusing: Refusing, states: Sequence[str]) -> None:
    for state in states:
        refusing.set(state)
        for call in refusing.calls():
            with pytest.raises(PenstockError) as refused:
                call()
            assert is_answered(refused.value), (state, refused.value)
    # The connections are as good as before.
    refusing.set(None)
    claim = refusing.claims[0]
    assert ["done"] == refusing.queue.settle([transitions.done(claim)])
    assert 1 == len(refusing.queue.claim(ClaimRequest("w", 1)))


def test_a_call_that_the_server_refuses_raises_no_error_of_the_driver(refusing: Refusing) -> None:
    refuse_all(refusing, ["25006", "25P03", "25P04", "XX000", "0A000", "42601", "23514", "P0001", "72000"])


@pytest.mark.long
def test_a_call_that_the_server_refuses_in_any_way_raises_no_error_of_the_driver(refusing: Refusing) -> None:
    # The conflicts of two transactions, which each call meets ten times, have tests of their own.
    refuse_all(refusing, [state for state in STATES if state[:2] not in ("23", "40")])


def test_after_a_switchover_a_queue_writes_through_new_sessions() -> None:
    """A session of a former primary stays read-only for as long as it lives."""
    url = postgres.fresh_store()
    queue = PostgresQueue(url)
    queue.add([new(1)])
    with queue._connections.borrowed() as connection:
        connection.execute("SET default_transaction_read_only = on")

    with pytest.raises(errors.StoreReadOnly):
        queue.claim(ClaimRequest("w"))

    assert 1 == len(queue.claim(ClaimRequest("w")))
    queue.close()


def test_every_error_in_a_call_of_a_redis_queue_is_one_of_penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = RedisQueue(queue_url(tmp_path))
    queue.add([new(1)])
    read = redis.connection.Connection.read_response
    for kind in [*OF_REDIS, OSError]:
        try:
            raised = kind("it failed")
        except (TypeError, ValueError, IndexError):
            raised = kind("3999 127.0.0.1:6381")

        def fail(*given: Any, raised: Exception = raised, **named: Any) -> Any:
            # What the server answered does not stay behind for the next call.
            with suppress(redis.exceptions.RedisError):
                read(*given, **named)
            raise raised

        calls: list[Callable[[], object]] = [
            lambda: queue.claim(ClaimRequest("w")),
            lambda: queue.add([new(2)]),
            queue.now,
            queue.paused,
        ]
        for call in calls:
            monkeypatch.setattr(redis.connection.Connection, "read_response", fail)
            with pytest.raises(PenstockError) as refused:
                call()
            monkeypatch.undo()
            assert is_answered(refused.value), (kind, refused.value)
    queue.add([new(3)])
    # The server ran some of the calls, whose answers were lost.
    assert "job_000003" in {claim.queue_id for claim in queue.claim(ClaimRequest("w", 9))}
    queue.close()
