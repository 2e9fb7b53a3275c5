"""Interface of a graph extractor: the chunks of a document in, entities and relations of each out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.catalog.graph import Extraction

PERSON, ORGANISATION, PLACE, NAME = "person", "organisation", "place", "name"
TERM, DATE, QUANTITY = "term", "date", "quantity"
"""Kinds of entities in prose."""
RELATED = "related"
"""The relation of names that stand together."""

SERVICE = "graph endpoint"
"""Name of a language model behind an endpoint, in messages and circuit breakers."""


class GraphChunk(msgspec.Struct, frozen=True):
    """A chunk of a document, with the place in the text of the page."""

    text: str
    page_number: int = 1
    start: int = 0
    first_line: int | None = None
    last_line: int | None = None
    heading_path: str = ""


class GraphDocument(msgspec.Struct, frozen=True):
    """All chunks of a document in order. ``module``: the name by which other files import a source file."""

    path: str
    chunks: Sequence[GraphChunk]
    language: str = ""
    """Programming language of source code, else empty."""
    module: str = ""


class GraphExtractor(Protocol):
    """Finds entities and relations. Pure: the same document gives the same answer."""

    name: str
    version: int
    """Part of the fingerprint of the phase. Raised when the same text may give another answer."""

    def extract(self, document: GraphDocument, wanted: Sequence[int]) -> list[Extraction]:
        """The extractions of the chunks at these positions of the document, in their order."""
        ...


NOTHING = Extraction({}, [])
