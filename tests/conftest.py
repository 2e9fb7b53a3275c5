"""Servers that tests share: started when the first test asks for one, ended when the last test has run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import redis, run


def pytest_configure(config: pytest.Config) -> None:
    run.begin(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    run.end(config, [redis.stop_shared])


@pytest.fixture(autouse=True)
def _cleaned_servers() -> Iterator[None]:
    yield
    redis.forget_queues()
