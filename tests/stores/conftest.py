"""Queues on PostgreSQL; tests of another engine have fixtures of their own by these names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from penstock.queue.postgres.queue import PostgresQueue
from tests.servers import postgres

Opener = Callable[..., PostgresQueue]


@pytest.fixture
def url() -> str:
    return postgres.fresh_store()


@pytest.fixture
def opened(url: str) -> Iterator[Opener]:
    queues: list[PostgresQueue] = []

    def open_one(**options: Any) -> PostgresQueue:
        queues.append(PostgresQueue(url, **options))
        return queues[-1]

    yield open_one
    for queue in queues:
        queue.close()


@pytest.fixture
def queue(opened: Opener) -> PostgresQueue:
    return opened()


@pytest.fixture
def own(url: str, queue: PostgresQueue) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection of somebody else's to the same schema."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


Own = psycopg.Connection[tuple[Any, ...]]
