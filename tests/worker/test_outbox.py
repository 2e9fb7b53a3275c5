"""The outbox: a failing claim is not taken for a refused result."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.queue.job import ClaimRequest
from penstock.queue.sqlite.queue import SqliteQueue
from penstock.worker.executor import Outbox
from penstock.worker.shared_state import SharedState
from tests.stores.new_jobs import new


def test_a_claim_that_fails_with_nothing_to_settle_is_raised(tmp_path: Path) -> None:
    """Answered with no claims, the worker would ask again for ever and say nothing."""
    with closing(SqliteQueue(tmp_path / "queue.db")) as queue:
        queue.add([new(1)])
        outbox = Outbox(queue, SharedState.in_memory())
        with pytest.raises(OverflowError):
            outbox.exchange(ClaimRequest("w", lease=timedelta.max))
