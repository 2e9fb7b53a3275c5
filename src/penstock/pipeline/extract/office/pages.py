"""Documents of several pages: only the requested pages, each with a separate failure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from penstock.errors import (
    DocumentDamaged,
    DocumentEncrypted,
    DocumentTooLarge,
    UnreadableDocument,
)
from penstock.pipeline.extract.paged import check_length, failure_warnings, wanted_pages
from penstock.pipeline.extract.protocol import ExtractLimits, Page
from penstock.vocabulary import how_many

PageReader = Callable[[int], Page]


def read_pages(
    count: int, read_page: PageReader, limits: ExtractLimits, wanted: range | None
) -> tuple[Page, ...]:
    """Read the pages with these numbers, or all of 1 to ``count``. A damaged page does not fail the others.

    A call for a range ends early after ``ExtractLimits.batch_seconds``, but reads at least one page.
    """
    if count > limits.pages:
        raise DocumentTooLarge(f"the document has {how_many(count, 'page')}; the limit is {limits.pages:,}")
    until = math.inf if wanted is None else time.process_time() + limits.batch_seconds
    found: list[Page] = []
    chars = 0
    for number in wanted_pages(count, wanted):
        found.append(_page(number, read_page))
        chars = check_length(chars + len(found[-1].text), limits)
        if time.process_time() > until:
            break
    if found and all(page.failure for page in found):
        raise DocumentDamaged(f"no part of the document can be read: {found[0].failure}")
    return tuple(found)


def _page(number: int, read_page: PageReader) -> Page:
    try:
        return read_page(number)
    except (DocumentEncrypted, DocumentTooLarge):
        raise
    except UnreadableDocument as error:
        return Page(number, "", failure=error.message)


def page_warnings(pages: Sequence[Page], unit: str) -> tuple[str, ...]:
    return failure_warnings([page.number for page in pages if page.failure], unit)
