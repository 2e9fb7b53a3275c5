"""Documents of several pages: those asked for, each with its own failure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from penstock.errors import (
    DocumentDamaged,
    DocumentEncrypted,
    DocumentTooLarge,
    UnreadableDocument,
)
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
    numbers = range(1, count + 1)
    until = math.inf
    if wanted is not None:
        numbers = range(max(1, wanted.start), min(count + 1, wanted.stop))
        until = time.process_time() + limits.batch_seconds
    found: list[Page] = []
    chars = 0
    for number in numbers:
        found.append(_page(number, read_page))
        chars += len(found[-1].text)
        if chars > limits.text_chars:
            raise DocumentTooLarge(f"the text has more than {limits.text_chars:,} characters")
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


def failure_warnings(pages: tuple[Page, ...], unit: str) -> tuple[str, ...]:
    failed = [str(page.number) for page in pages if page.failure]
    return (f"{unit}s that cannot be read: {', '.join(failed)}",) if failed else ()
