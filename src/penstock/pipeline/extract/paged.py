"""Extraction of documents whose pages are read one at a time."""

from __future__ import annotations

import math
import time
from contextlib import closing

from penstock.errors import DocumentDamaged, DocumentTooLarge
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    PagedDocument,
    PagedExtractor,
)


def extract_pages(
    extractor: PagedExtractor,
    content: Content,
    file_type: FileType,
    limits: ExtractLimits,
    pages: range | None = None,
) -> ExtractedText:
    """Extract pages of a document: those with these numbers, or all; see ``Extractor.extract``."""
    with closing(extractor.open(content, limits)) as document:
        found = _read(document, pages, limits)
        if found and all(page.failure for page in found):
            raise DocumentDamaged(f"no page can be read: {found[0].failure}")
        return ExtractedText(
            pages=tuple(found),
            file_type=file_type,
            shape=extractor.shape,
            page_count=document.page_count,
            title=document.title,
            warnings=document.warnings + _failure_warnings(found),
            properties=document.properties,
            attachments=document.attachments,
        )


def _read(document: PagedDocument, pages: range | None, limits: ExtractLimits) -> list[Page]:
    count = document.page_count
    wanted = range(1, count + 1) if pages is None else range(max(1, pages.start), min(count + 1, pages.stop))
    until = math.inf if pages is None else time.process_time() + limits.batch_seconds
    found: list[Page] = []
    chars = 0
    for number in wanted:
        page = document.page(number)
        chars += len(page.text)
        if chars > limits.text_chars:
            raise DocumentTooLarge(f"the text has more than {limits.text_chars:,} characters")
        found.append(page)
        if time.process_time() > until:
            break
    return found


def _failure_warnings(found: list[Page]) -> tuple[str, ...]:
    failed = [str(page.number) for page in found if page.failure]
    return (f"pages that cannot be read: {', '.join(failed)}",) if failed else ()
