"""A queue per engine, and the few things the tests of the service do with one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, Receipt, config
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest
from penstock.queue.memory.queue import MemoryQueue
from penstock.queue.retry import Classification
from penstock.service.jobs import Jobs
from tests.servers.stores import DURABLE, given_back, store_url

BROKEN = Classification("permanent", "ERR_PARSE")
FLAKY = Classification("transient", "ERR_NETWORK")


@pytest.fixture(params=["memory", *DURABLE])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Penstock]:
    url = store_url(request.param, tmp_path)
    with Penstock(
        settings=config.load({}, url=url, state_dir=tmp_path, sqlite_synchronous="NORMAL")
    ) as opened:
        yield opened
    given_back(tmp_path)


@pytest.fixture
def jobs() -> Jobs:
    """Jobs on a memory queue, for requests refused before any engine is used."""
    return Jobs(MemoryQueue(), config.load({}))


def note(app: Jobs, text: str = "The mill runs.", **more: Any) -> Receipt:
    return app.submit(item_type="content", op="ingest", payload={"content": text}, **more)


def call(app: Jobs, name: str = "mail", **more: Any) -> Receipt:
    return app.submit(item_type="function", op="run", payload={"function_name": name}, **more)


def claim(app: Jobs, limit: int = 1) -> list[Claim]:
    return app.queue.claim(ClaimRequest("w1", limit))


def fail(app: Jobs, *claims: Claim) -> None:
    app.queue.settle([transitions.failed_attempt(each, BROKEN, "torn page") for each in claims])
