"""Jobs added in a transaction of the caller."""

from __future__ import annotations

import re

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from psycopg.rows import dict_row

from penstock.errors import DuplicateId, InvalidRequest
from penstock.queue.job import JobQuery
from penstock.queue.postgres.queue import PostgresQueue
from tests.stores.conftest import Opener, Own
from tests.stores.new_jobs import T0, new

# Joining the caller's transaction.


def _sqlalchemy(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))


@pytest.mark.parametrize("autocommit", [False, True])
def test_an_add_joins_a_psycopg_transaction(queue: PostgresQueue, url: str, autocommit: bool) -> None:
    with psycopg.connect(url, autocommit=autocommit, row_factory=dict_row) as connection:
        with connection.transaction():
            queue.add([new(1, dedupe=False), new(2, dedupe=False)], connection=connection, now=T0)
            assert queue.get("job_000001") is None
        with connection.transaction(force_rollback=True):
            queue.add([new(3, dedupe=False)], connection=connection, now=T0)

    assert ["job_000001", "job_000002"] == [job.queue_id for job in queue.find(JobQuery())]


def test_an_add_joins_the_transaction_of_a_sqlalchemy_connection(queue: PostgresQueue, url: str) -> None:
    engine = _sqlalchemy(url)
    with engine.connect() as connection:
        queue.add([new(1, dedupe=False)], connection=connection, now=T0)
        assert queue.get("job_000001") is None
        connection.commit()
        queue.add([new(2, dedupe=False)], connection=connection, now=T0)
        connection.rollback()
    with engine.begin() as connection:
        queue.add([new(3, dedupe=False)], connection=connection, now=T0)
    engine.dispose()

    assert ["job_000001", "job_000003"] == [job.queue_id for job in queue.find(JobQuery())]


def test_an_add_joins_the_transaction_of_a_sqlalchemy_session(queue: PostgresQueue, url: str) -> None:
    engine = _sqlalchemy(url)
    with sqlalchemy.orm.Session(engine) as session:
        queue.add([new(1, dedupe=False)], connection=session, now=T0)
        session.commit()
        session.execute(sqlalchemy.text("SELECT 1"))
        queue.add([new(2, dedupe=False)], connection=session, now=T0)
        session.rollback()
    engine.dispose()

    assert ["job_000001"] == [job.queue_id for job in queue.find(JobQuery())]


def test_an_add_that_joins_writes_no_other_row(queue: PostgresQueue, own: Own) -> None:
    queue.add([new(1)], now=T0)
    before = queue.find(JobQuery())
    with own.transaction():
        queue.add([new(2, idempotency_key=before[0].idempotency_key, dedupe=False)], connection=own, now=T0)

    assert before == queue.find(JobQuery())[:1]
    assert 2 == len(queue.find(JobQuery()))


def test_a_job_that_joins_must_not_dedupe(queue: PostgresQueue, own: Own) -> None:
    with pytest.raises(InvalidRequest, match="dedupe=False"):
        queue.add([new(1)], connection=own)


def test_a_taken_id_is_refused_in_the_callers_transaction(queue: PostgresQueue, own: Own) -> None:
    queue.add([new(1)], now=T0)
    with own.transaction(), pytest.raises(DuplicateId):
        queue.add([new(1, dedupe=False)], connection=own)
    assert {(): 1} == queue.count(JobQuery())


@pytest.mark.parametrize("wrong", [object(), "postgresql://", 7])
def test_what_is_no_connection_is_refused(queue: PostgresQueue, wrong: object) -> None:
    with pytest.raises(InvalidRequest, match=re.escape("psycopg.Connection")):
        queue.add([new(1, dedupe=False)], connection=wrong)


def test_a_joined_add_is_told_when_its_caller_commits(opened: Opener, own: Own) -> None:
    queue = opened()
    assert queue.wait(0)
    with own.transaction():
        queue.add([new(1, dedupe=False)], connection=own)
        assert not queue.wait(0.05)
    assert queue.wait(120)
