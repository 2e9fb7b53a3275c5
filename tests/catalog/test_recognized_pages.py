"""Pages whose text is recognized: a line of tasks of their own, and what is kept of their text."""

from __future__ import annotations

import msgspec
import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import NewPage, Outcome, PageState, Phase, Removal, Task, TaskRequest, TaskStatus
from tests.catalog.conftest import DOCS, PERMANENT, at, chunk, page, put


def picture(number: int) -> NewPage:
    return NewPage(number=number, needs_ocr=True)


def recognized(number: int = 1, text: str = "# Mill\n\nthe weir") -> NewPage:
    """A page read by OCR."""
    return NewPage(
        number=number,
        chunks=(chunk(text),),
        text=text,
        engine="tesseract",
        confidence=91.25,
        warnings=("turned by 90 degrees",),
    )


def claim(catalog: Catalog, *, needs_ocr: bool, limit: int = 32, seconds: float = 1) -> list[Task]:
    return catalog.claim(TaskRequest(Phase.OCR, "w1", limit, needs_ocr=needs_ocr), now=at(seconds))


def page_states(catalog: Catalog, document_id: int | None) -> list[PageState]:
    assert document_id is not None
    with catalog.snapshot() as snapshot:
        return snapshot.pages(document_id)


def test_pictures_wait_in_a_line_of_their_own(catalog: Catalog):
    stored = put(catalog, "/mixed.pdf", page("a page of text", number=1), picture(2), NewPage(number=3))

    assert stored.outcome is Outcome.BUILDING
    assert [3] == [task.page_number for task in claim(catalog, needs_ocr=False)]
    (task,) = claim(catalog, needs_ocr=True)
    assert (2, True) == (task.page_number, task.needs_ocr)
    assert [] == claim(catalog, needs_ocr=True)


def test_a_page_found_to_be_a_picture_changes_the_line(catalog: Catalog):
    put(catalog, "/scan.pdf", NewPage(number=1))
    (task,) = claim(catalog, needs_ocr=False)

    catalog.settle([publication.needs_ocr(task)], now=at(2))

    assert [] == claim(catalog, needs_ocr=False, seconds=3)
    (again,) = claim(catalog, needs_ocr=True, seconds=3)
    assert (1, 0, True) == (again.page_number, again.retry_count, again.needs_ocr)


def test_a_lost_recognition_is_tried_again_in_its_line(catalog: Catalog):
    put(catalog, "/scan.pdf", picture(1))
    (task,) = claim(catalog, needs_ocr=True)
    catalog.settle([publication.lost(task)], now=at(2))

    assert [] == claim(catalog, needs_ocr=False, seconds=3)
    (again,) = claim(catalog, needs_ocr=True, seconds=3)
    assert (1, True) == (again.retry_count, again.suspect)


def test_documents_take_turns_after_few_recognitions(catalog: Catalog):
    put(catalog, "/long.pdf", *(picture(number) for number in range(1, 21)))
    first = claim(catalog, needs_ocr=True, limit=4)
    put(catalog, "/short.pdf", picture(1))

    then = claim(catalog, needs_ocr=True, limit=5)
    assert [1, 2, 3, 4] == [task.page_number for task in first]
    assert {"/long.pdf": 4, "/short.pdf": 1} == {
        path: sum(task.source.path == path for task in then) for path in ("/long.pdf", "/short.pdf")
    }


@pytest.mark.parametrize("by_task", [False, True], ids=["stored whole", "by a task"])
def test_text_engine_confidence_and_warnings_are_kept(catalog: Catalog, by_task: bool):
    stored = put(catalog, "/scan.pdf", picture(1) if by_task else recognized())
    if by_task:
        (task,) = claim(catalog, needs_ocr=True)
        done = msgspec.structs.replace(recognized(), file_path="/pages/1_nohf.md")
        assert [TaskStatus.COMPLETED] == catalog.settle([publication.completed_page(task, done)], now=at(2))

    (state,) = page_states(catalog, stored.document_id)
    assert ("tesseract", 91.25, ("turned by 90 degrees",)) == (
        state.engine,
        state.confidence,
        state.warnings,
    )
    assert ("/pages/1_nohf.md" if by_task else None) == state.file_path
    assert stored.document_id is not None
    with catalog.snapshot() as snapshot:
        (kept,) = snapshot.content(stored.document_id, 1)
        assert () == snapshot.content(stored.document_id, 2)
    assert ("# Mill\n\nthe weir", "tesseract", 91.25) == (kept.text, kept.engine, kept.confidence)


def test_a_page_without_recognition_says_so(catalog: Catalog):
    stored = put(catalog, "/a.md", page("text"))

    (state,) = page_states(catalog, stored.document_id)
    assert ("", None, (), False) == (state.engine, state.confidence, state.warnings, state.needs_ocr)


def test_a_failed_recognition_keeps_the_place_of_its_file(catalog: Catalog):
    waiting = NewPage(number=1, needs_ocr=True, file_path="/inbox/scan.pdf")
    stored = put(catalog, "/scan.pdf", waiting)
    (task,) = claim(catalog, needs_ocr=True)
    assert "/inbox/scan.pdf" == task.file_path
    catalog.settle([publication.failed_attempt(task, PERMANENT, "blank")], now=at(2))
    assert stored.document_id is not None

    assert 1 == catalog.retry(stored.document_id, now=at(3))
    (again,) = claim(catalog, needs_ocr=True, seconds=4)
    assert "/inbox/scan.pdf" == again.file_path
    catalog.settle([publication.completed_page(again, recognized())], now=at(5))
    (state,) = page_states(catalog, stored.document_id)
    assert state.file_path is None


def test_a_removed_document_leaves_no_text_of_its_pages(catalog: Catalog):
    stored = put(catalog, "/scan.pdf", recognized())
    assert stored.document_id is not None

    catalog.remove(Removal(tenant_id=DOCS.tenant_id, asked_at=at(1)), now=at(1))
    assert catalog.clear([entry.entry_id for entry in catalog.outbox()], now=at(2))

    with catalog.snapshot() as snapshot:
        assert () == snapshot.content(stored.document_id)


def test_recognized_pages_are_counted_below_a_path(catalog: Catalog):
    poor = msgspec.structs.replace(recognized(2), confidence=40.0)
    put(catalog, "/scans/a.pdf", recognized(1), poor, page("a layer", number=3))
    put(catalog, "/scans/b.pdf", recognized(), now=at(10))
    put(catalog, "/scans2/c.pdf", recognized())

    with catalog.snapshot() as snapshot:
        below = snapshot.recognized(DOCS, "/scans", at(0), 65)
        assert (3, 1) == (below.pages, below.low)
        assert below.confidence == pytest.approx((91.25 + 40 + 91.25) / 3)
        assert 1 == snapshot.recognized(DOCS, "/scans", at(5), 65).pages
        assert 2 == snapshot.recognized(DOCS, "/scans/a.pdf", at(0), 65).pages
        none = snapshot.recognized(DOCS, "/other", at(0), 65)
    assert (0, None, 0) == (none.pages, none.confidence, none.low)
