"""Reads of the keyword index, part of a catalog's snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.catalog.views import Filters, Holding, KeywordHit


class WordReads(Protocol):
    """Reads of the keyword index in a catalog snapshot."""

    def keyword(
        self,
        query: str,
        filters: Filters,
        *,
        limit: int = 10,
        marks: tuple[str, str] = ("", ""),
        snippets: int | None = None,
    ) -> list[KeywordHit]:
        """Best published chunks for words in ``query`` (any of them; "quoted words" as a phrase), best first.
        Nothing in the query is an operator; a query without a word finds nothing. Only the first
        ``snippets`` (None: all) get one: making it costs more than finding the chunk."""

    def snippets(
        self, query: str, content_ids: Sequence[int], marks: tuple[str, str] = ("", "")
    ) -> dict[int, str]:
        """Snippets as in ``keyword``, of those of these chunks that hold a word of ``query``."""

    def words_in(self, query: str, content_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """The words and quoted phrases of ``query`` that each of these chunks holds, compared as ``keyword``
        does; chunks that hold none are left out."""

    def holding(self, words: Sequence[str], filters: Filters, *, most: int) -> dict[str, Holding]:
        """Published chunks with each of these words, of the first ``most`` in the index; see ``Holding``."""
