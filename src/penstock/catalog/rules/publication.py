"""Publication: the rules for making a generation visible to search. Pure."""

from __future__ import annotations

import enum
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

from penstock.catalog.values import SETTLED, TaskStatus
from penstock.named_tuple import NamedTuple

REMOVED_WHILE_INDEXING = "removed while indexing"
SUPERSEDED = "a later reading is published"
REPLACED = "replaced by a newer generation"
UNFINISHED = "it was written only in part"
NOTHING_USABLE = "no page could be read"
NO_VECTORS = "no chunk could be embedded"


class Verdict(enum.Enum):
    WAIT = "wait"
    PUBLISH = "publish"
    KEEP_BACK = "keep back"


class GenerationFacts(NamedTuple):
    """State of a generation: ocr and vector, the pages and chunks that came through, parts that failed for
    reasons outside the document, and parts that are still to be written."""

    ocr: TaskStatus
    vector: TaskStatus
    pages: int
    pages_read: int
    chunks_embedded: int
    outages: int
    unwritten: int = 0


@lru_cache(1024)
def verdict(facts: GenerationFacts) -> tuple[Verdict, str | None]:
    """Publish once ocr and vector are settled, without the parts that failed by their content. Keep back
    after an outage, and when no part succeeded. The text: why not."""
    if facts.unwritten or facts.ocr not in SETTLED or facts.vector not in SETTLED:
        return Verdict.WAIT, None
    if facts.outages:
        return Verdict.KEEP_BACK, f"{facts.outages} of its parts failed for reasons outside the document"
    if facts.ocr is TaskStatus.FAILED and not facts.pages_read:
        return Verdict.KEEP_BACK, NOTHING_USABLE
    if facts.vector is TaskStatus.FAILED and not facts.chunks_embedded:
        return Verdict.KEEP_BACK, NO_VECTORS
    return Verdict.PUBLISH, None


Moment = TypeVar("Moment", str, datetime)


def superseded(read_at: Moment, published_read_at: Moment | None) -> bool:
    """Check whether a later reading is published. (Times as text have a fixed width.)"""
    return published_read_at is not None and published_read_at > read_at
