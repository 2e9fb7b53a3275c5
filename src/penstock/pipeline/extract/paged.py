"""Extraction of documents page by page."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TypeGuard

import msgspec

from penstock.errors import (
    DocumentDamaged,
    DocumentTooLarge,
    MemoryBudgetExceeded,
    ParserFailed,
    TimeBudgetExceeded,
    UnreadableDocument,
)
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    Extractor,
    FileType,
    Page,
    PagedDocument,
    PagedExtractor,
)

_ERRORS = {error.code: error for error in (ParserFailed, TimeBudgetExceeded, MemoryBudgetExceeded)}


def is_paged(extractor: Extractor) -> TypeGuard[PagedExtractor]:
    return hasattr(extractor, "open")


def extract_pages(
    extractor: PagedExtractor,
    content: Content,
    file_type: FileType,
    limits: ExtractLimits,
    pages: range | None = None,
) -> ExtractedText:
    """Extract pages of a document: those with these numbers, or all; see ``Extractor.extract``."""
    with closing(extractor.open(content, limits)) as document:
        wanted = wanted_pages(document.page_count, pages)
        head = document_head(extractor, document, file_type, first=1 in wanted)
        until = math.inf if pages is None else time.process_time() + limits.batch_seconds
        found: list[Page] = []
        chars = 0
        for number in wanted:
            found.append(read_page(document, number))
            chars = check_length(chars + len(found[-1].text), limits)
            if time.process_time() > until:
                break
        return with_pages(head, found)


def wanted_pages(count: int, pages: range | None) -> range:
    """Numbers of the pages in a range, or of all pages of the document."""
    return range(1, count + 1) if pages is None else range(max(1, pages.start), min(count + 1, pages.stop))


def document_head(
    extractor: PagedExtractor, document: PagedDocument, file_type: FileType, *, first: bool
) -> ExtractedText:
    """All of a document except the pages.

    ``first``: with the warnings and attachments, which take long to read and are wanted once.
    """
    return ExtractedText(
        pages=(),
        file_type=file_type,
        shape=extractor.shape,
        page_count=document.page_count,
        title=document.title,
        warnings=document.warnings if first else (),
        properties=document.properties,
        attachments=document.attachments if first else (),
    )


def with_pages(head: ExtractedText, found: Sequence[Page]) -> ExtractedText:
    """The document with these pages. Raises an ``UnreadableDocument`` if every page failed."""
    failures = [(page.number, page.failure_code, page.failure) for page in found if page.failure]
    refuse_unreadable(head.page_count, failures)
    return msgspec.structs.replace(
        head,
        pages=tuple(found),
        warnings=head.warnings + failure_warnings([number for number, *_ in failures]),
    )


def refuse_unreadable(page_count: int, failures: Sequence[tuple[int, str, str]]) -> None:
    """Raise the error of the first failure (page number, code, reason) if all pages failed."""
    if failures and len(failures) >= page_count:
        _, code, reason = failures[0]
        if code in _ERRORS:
            raise _ERRORS[code](reason)
        raise DocumentDamaged(f"no page can be read: {reason}")


def failure_warnings(numbers: Sequence[int], unit: str = "page") -> tuple[str, ...]:
    return (f"{unit}s that cannot be read: {', '.join(map(str, numbers))}",) if numbers else ()


def read_page(document: PagedDocument, number: int) -> Page:
    """Read one page. An error becomes the failure of the page, except a lack of memory."""
    try:
        return document.page(number)
    except MemoryError:
        raise
    except UnreadableDocument as error:
        return Page(number, "", failure=error.message, failure_code=error.code)
    except Exception as error:  # noqa: BLE001 - parsers of other projects raise anything
        reason = f"the parser failed: {type(error).__name__}: {error}"[:500]
        return Page(number, "", failure=reason, failure_code=ParserFailed.code)


def check_length(chars: int, limits: ExtractLimits) -> int:
    """The number of characters. Raises ``DocumentTooLarge`` if there are too many."""
    if chars > limits.text_chars:
        raise DocumentTooLarge(f"the text has more than {limits.text_chars:,} characters")
    return chars
