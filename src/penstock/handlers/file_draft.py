"""Draft of a file: the pages to read in the job, and the limit of open tasks."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase
from penstock.handlers.chunk_vectors import MAX_TEXTS
from penstock.handlers.file_reader import FileContent
from penstock.handlers.file_request import FileRequest
from penstock.pipeline.draft import Draft, with_all_pages
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.pipeline import Pipeline

PAGES_PER_CALL = 32
"""Pages of a document that are read in its job; the others become tasks."""
MAX_OPEN_TASKS = 5_000
"""While more tasks of a lane are open, files that would add to them wait. Small files continue."""


def draft_file(pipeline: Pipeline, request: FileRequest, read: FileContent) -> Draft:
    """Draft a file. Of a long document only the first pages; the others become tasks."""
    content = Content(request.name, read.data, read.size)
    paged = file_types.detect(request.name, read.data) == file_types.PDF
    pages = range(1, PAGES_PER_CALL + 1) if paged else None
    draft = pipeline.draft(content, request.sizes, pages=pages, ocr=request.ocr)
    failed = not draft.chunks and not draft.unread
    if paged and failed and len(draft.pages) >= draft.page_count:
        # Once more without a range: only a complete document can be refused for having no text.
        return pipeline.draft(content, request.sizes, ocr=request.ocr)
    return with_all_pages(draft, request.read_from if request.read_from != request.path else None)


def lanes_of(draft: Draft) -> list[Phase]:
    """The lanes with tasks from a draft: for unread pages, and for more chunks than a job embeds."""
    lanes = [Phase.OCR] if draft.unread else []
    return [*lanes, Phase.VECTOR] if len(draft.chunks) > MAX_TEXTS else lanes


def too_many_tasks(catalog: Catalog, lanes: Sequence[Phase]) -> bool:
    """Check whether a file that adds tasks to these lanes has to wait.

    Each lane counts alone: a scan does not wait for the chunks of a large log.
    """
    if not lanes:
        return False
    with catalog.snapshot() as snapshot:
        return any(snapshot.open_tasks(lane) > MAX_OPEN_TASKS for lane in lanes)
