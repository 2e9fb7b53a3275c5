"""Submissions of different senders in one transaction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import InvalidRequest, QueueFull
from penstock.http.quick_notes import GroupedSubmissions
from penstock.service.grouped_submissions import submit_each
from penstock.service.requests import Submission
from penstock.service.responses import Receipt


def note(text: str, delay: float | None = None) -> Submission:
    return {"item_type": "content", "op": "ingest", "payload": {"content": text}, "delay": delay}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_MAX_QUEUE", "3")
    with Penstock(state_dir=tmp_path) as opened:
        yield opened


def test_each_is_accepted_or_refused_alone(app: Penstock):
    found = submit_each(
        app, [note("a"), note(""), note("a"), note("b"), note("c"), note("d"), note("e", delay=60)]
    )

    first, wrong, same, second, third, full, late = found
    assert isinstance(first, Receipt)
    assert isinstance(wrong, InvalidRequest)
    assert isinstance(same, Receipt)
    assert (first.job_id, True) == (same.job_id, same.dedupe_hit)
    assert [0, 1, 2] == [each.queue_position for each in (first, second, third) if isinstance(each, Receipt)]
    assert isinstance(full, QueueFull)
    assert isinstance(late, QueueFull)
    assert 3 == app.stats().by_status["pending"]


def test_a_later_job_has_its_start_instead_of_a_position(app: Penstock):
    (late,) = submit_each(app, [note("later", delay=60)])

    assert isinstance(late, Receipt)
    assert late.queue_position is None
    assert late.run_at is not None


def test_requests_that_wait_at_the_same_time_share_a_transaction(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
):
    added: list[int] = []
    add = app.queue.add

    def counted(new: Any, **given: Any) -> Any:
        added.append(len(new))
        return add(new, **given)

    monkeypatch.setattr(app.queue, "add", counted)
    groups = GroupedSubmissions(app)

    async def send() -> list[Any]:
        texts = ("a", "b", "c", "")
        return await asyncio.gather(*(groups.submit(note(text)) for text in texts), return_exceptions=True)

    found = asyncio.run(send())
    groups.close()

    assert [1, 2] == added
    assert 3 == len({each.job_id for each in found if isinstance(each, Receipt)})
    assert isinstance(found[3], InvalidRequest)
