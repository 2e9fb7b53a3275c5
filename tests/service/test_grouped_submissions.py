"""Submissions of different senders in one transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock
from penstock.errors import InvalidRequest, QueueFull
from penstock.http import quick_notes
from penstock.http.quick_notes import GroupedSubmissions
from penstock.service import notes
from penstock.service.notes import NoteRows, submit_each
from penstock.service.requests import Receipt, Submission


def note(text: str, delay: float | None = None) -> Submission:
    return {"item_type": "content", "op": "ingest", "payload": {"content": text}, "delay": delay}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_MAX_QUEUE", "3")
    with Penstock(state_dir=tmp_path) as opened:
        yield opened


def test_each_is_accepted_or_refused_alone(app: Penstock):
    found = submit_each(
        app,
        NoteRows(app),
        [note("a"), note(""), note("a"), note("b"), note("c"), note("d"), note("e", delay=60)],
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


def test_a_later_job_has_its_start_beside_its_position(app: Penstock):
    (late,) = submit_each(app, NoteRows(app), [note("later", delay=60)])

    assert isinstance(late, Receipt)
    assert (0, 1) == (late.queue_position, late.queue_length)
    assert late.run_at is not None


class HeldAdditions:
    """The numbers of jobs added in each transaction. The first transaction waits until it is let go."""

    def __init__(self, app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: list[int] = []
        self.begun, self.free = threading.Event(), threading.Event()
        self._add = app.queue.add_counted
        monkeypatch.setattr(app.queue, "add_counted", self._held)

    def _held(self, new: Any, **given: Any) -> Any:
        self.numbers.append(len(new))
        self.begun.set()
        assert self.free.wait(60)
        return self._add(new, **given)

    async def during_the_first(
        self, groups: GroupedSubmissions, texts: Sequence[str]
    ) -> list[asyncio.Task[Receipt]]:
        """Submit the first text, and the others while it is added."""
        loop = asyncio.get_running_loop()
        first = loop.create_task(groups.submit(note(texts[0])))
        assert await asyncio.to_thread(self.begun.wait, 60)
        others = [loop.create_task(groups.submit(note(text))) for text in texts[1:]]
        await asyncio.sleep(0)  # each of them runs up to its answer
        return [first, *others]


def test_requests_that_wait_at_the_same_time_share_a_transaction(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
):
    held, groups = HeldAdditions(app, monkeypatch), GroupedSubmissions(app)

    async def send() -> list[Any]:
        sent = await held.during_the_first(groups, ("a", "b", "c", ""))
        held.free.set()
        return await asyncio.gather(*sent, return_exceptions=True)

    found = asyncio.run(send())
    groups.close()

    assert [1, 2] == held.numbers
    assert 3 == len({each.job_id for each in found if isinstance(each, Receipt)})
    assert isinstance(found[3], InvalidRequest)


def test_a_transaction_adds_a_bounded_number(app: Penstock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quick_notes, "MOST_AT_ONCE", 2)
    held, groups = HeldAdditions(app, monkeypatch), GroupedSubmissions(app)

    async def send() -> None:
        sent = await held.during_the_first(groups, ("a", "b", "b", "b"))
        held.free.set()
        await asyncio.gather(*sent)

    asyncio.run(send())
    groups.close()

    assert [1, 2, 1] == held.numbers


def test_jobs_received_before_the_end_are_added(app: Penstock, monkeypatch: pytest.MonkeyPatch):
    held, groups = HeldAdditions(app, monkeypatch), GroupedSubmissions(app)

    async def send() -> list[Receipt]:
        sent = await held.during_the_first(groups, ("a", "b"))
        closed = asyncio.get_running_loop().run_in_executor(None, groups.close)
        held.free.set()
        await closed
        return list(await asyncio.gather(*sent))

    assert 2 == len({each.job_id for each in asyncio.run(send())})


PLACES = [
    ("me", "c", "main"),
    ("None", "c", "main"),
    (None, "c", "main"),
    ("me", "c", "other"),
    ("me", None, "main"),
]


def at_place(text: str, place: tuple[str | None, str | None, str]) -> Submission:
    tenant_id, collection, branch = place
    return {
        "item_type": "content",
        "op": "ingest",
        "payload": {"content": text},
        "tenant_id": tenant_id,
        "collection": collection,
        "branch": branch,
    }


def test_a_row_from_a_template_is_that_of_a_submission(app: Penstock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 1, 2, tzinfo=UTC))
    monkeypatch.setattr(clock, "new_ids", lambda count: [f"job_{number}" for number in range(count)])
    rows = NoteRows(app)
    for text in ("first", "plain", ' quoted "text"\n', "Größe 漢字 😀"):
        for place in PLACES:
            given = at_place(text, place)
            assert app._new([given], joins=False) == [rows.build(given)]

    assert len(PLACES) == len(rows._templates)


@pytest.mark.parametrize("text", ["", " \n", "a\0b", "\ud800", "long"], ids=range(5))
def test_a_template_refuses_what_a_submission_refuses(app: Penstock, text: str):
    rows = NoteRows(app)
    rows.build(at_place("first", PLACES[0]))
    text *= app.settings.max_payload_bytes if text == "long" else 1
    with pytest.raises(InvalidRequest) as usual:
        app._new([at_place(text, PLACES[0])], joins=False)
    with pytest.raises(InvalidRequest) as quick:
        rows.build(at_place(text, PLACES[0]))

    assert (type(usual.value), str(usual.value)) == (type(quick.value), str(quick.value))


def test_few_templates_are_kept(app: Penstock):
    rows = NoteRows(app)
    for number in range(notes.MOST_TEMPLATES + 5):
        rows.build(at_place("a", ("me", f"c{number}", "main")))

    assert 5 == len(rows._templates)
