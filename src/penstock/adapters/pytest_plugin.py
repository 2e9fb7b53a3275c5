"""A pytest plugin: the fixture ``penstock_app``, an application with a running worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

# Loaded by every pytest run of the environment: what it costs to import waits for the first use.
if TYPE_CHECKING:
    from pathlib import Path

    from penstock.app import Penstock


@pytest.fixture
def penstock_app(tmp_path: Path) -> Iterator[Penstock]:
    """Open an empty ``Penstock`` with a worker in a thread; both end with the test.

    def test_double(penstock_app):
        penstock_app.function("double")(lambda payload: payload["n"] * 2)
        receipt = penstock_app.call("double", {"n": 21})
        assert penstock_app.wait(receipt.job_id, timeout=10).result == 42
    """
    from penstock.app import Penstock

    with Penstock(state_dir=tmp_path / "penstock") as app, app.worker_thread():
        yield app
