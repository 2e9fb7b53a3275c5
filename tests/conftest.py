"""Shared fixtures: servers, started at the first use, and a temporary state directory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.servers import redis, run


def pytest_configure(config: pytest.Config) -> None:
    run.begin(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    run.end(config, [redis.stop_shared])


_NUMBER = itertools.count()


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary state directory, never the user's."""
    place = tmp_path_factory.getbasetemp() / f"user-{next(_NUMBER)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    # For settings that are read from no environment at all.
    monkeypatch.setenv("HOME", str(place))


@pytest.fixture(autouse=True)
def _cleaned_servers() -> Iterator[None]:
    yield
    redis.forget_queues()
