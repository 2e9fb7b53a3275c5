"""Stores by engine name: layers above the queue protocol are tested by URL alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

DURABLE = ("sqlite", "jsonl", "postgres", "redis")
"""The engines whose jobs outlive a process."""
ON_FILES = ("sqlite", "jsonl")
ON_SERVERS = ("postgres", "redis")
FIRST = ("sqlite", "postgres")
"""Engines of `make test` where the store matters little: on a file and on a server, both with a catalog."""


def others_later(values: Iterable[str], first: Collection[str] = FIRST) -> list[ParameterSet]:
    """Parameters of a test: the first ones for `make test`, the others for `make test-long`."""
    return [pytest.param(each, marks=[pytest.mark.long] * (each not in first)) for each in values]


def store_url(engine: str, place: Path) -> str:
    """A place's own store."""
    if engine == "postgres":
        from tests.servers import postgres

        return postgres.store_at(place)
    if engine == "redis":
        from tests.servers import redis

        return redis.queue_url(place)
    return {
        "memory": "memory://",
        "sqlite": f"sqlite:///{place}/queue.db",
        "jsonl": f"jsonl://{place}/queue",
    }[engine]


def given_back(place: Path) -> None:
    """Give the server's space for this test back to the next."""
    if (place / "postgres.json").exists():
        from tests.servers import postgres

        postgres.give_back(place)
