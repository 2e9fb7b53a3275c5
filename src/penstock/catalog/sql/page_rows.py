"""Rows of pages: the turns of their tasks, and their kept texts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.catalog.rules.phases import RECOGNITIONS_PER_TURN, turns
from penstock.catalog.sql.statements import Statements, listed, readable
from penstock.catalog.sql.written_records import PageText
from penstock.catalog.values import NewPage


def turns_of_pages(
    rows: Statements, pages: Sequence[NewPage], priority: int, first: int = 0, given: int = 0
) -> tuple[int, list[int]]:
    """Turns for the pages of a document in lane ocr, and the document's new first turn; see ``turns``.

    Pages to be recognized wait in a line of their own.
    """
    first, numbers = turns(first, given, rows.value("head_ocr", priority, False), len(pages))
    if not any(page.needs_ocr for page in pages):
        return first, numbers
    head = rows.value("head_ocr", priority, True)
    _, slow = turns(0, given, head, len(pages), RECOGNITIONS_PER_TURN)
    return first, [slow[at] if page.needs_ocr else numbers[at] for at, page in enumerate(pages)]


def kept_texts(page_id: int, page: NewPage) -> list[PageText]:
    """The row of a page's text, if kept."""
    if page.text is None:
        return []
    warnings = listed([readable(warning) for warning in page.warnings])
    return [PageText(page_id, page.text, readable(page.engine), page.confidence, warnings)]
