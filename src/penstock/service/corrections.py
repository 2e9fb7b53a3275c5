"""Corrections of misspelt words: only of words missing from all documents of the tenant."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from penstock.catalog.protocol import CatalogSnapshot
from penstock.catalog.rules.words import (
    WORD_PIECES,
    closest_word,
    is_correctable,
    is_likelier,
    may_be_misspelt,
    neighbours,
    words_outside_quotes,
)
from penstock.catalog.values import Filters
from penstock.errors import InvalidSetting

MOST_CORRECTIONS = 3
"""Misspelt words looked up in one query: a text in another language has many unknown words."""
MOST_TEXTS = 200
"""Texts looked at for each word. A word in more of them is frequent enough to be meant."""
FIRST_TEXTS = 8
"""Texts looked at first: mostly one is enough to know that there is such a word."""
SHOWN_TEXTS = 5
"""Texts read to find the form of a word that they have."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A word of a query, and the word that was searched for instead."""

    word: str
    searched: str


def corrections(
    snapshot: CatalogSnapshot, query: str, filters: Filters, found: Collection[str]
) -> list[Correction]:
    """Correct words without an occurrence. ``found``: words known to occur, in lower case."""
    doubtful = [
        word
        for word in words_outside_quotes(query)
        # A capital inside a query begins a name, and names are like other words by chance.
        if (word[0].islower() or query.lstrip().startswith(word))
        and word.lower() not in found
        and is_correctable(word)
        and may_be_misspelt(word, _count_pieces)
    ]
    if not doubtful:
        return []
    missing = _missing(snapshot, _missing(snapshot, doubtful, filters, FIRST_TEXTS), filters, MOST_TEXTS)
    return list(_corrected(snapshot, filters, missing[:MOST_CORRECTIONS]))


def _missing(snapshot: CatalogSnapshot, words: list[str], filters: Filters, most: int) -> list[str]:
    """Words missing from all texts of the tenant. Words of very many texts of others count as known."""
    if not words:
        return []
    known = snapshot.holding(words, Filters(tenant_id=filters.tenant_id), most=most)
    return [
        word
        for word in words
        if word not in known or (not known[word].content_ids and not (known[word].cut and most == MOST_TEXTS))
    ]


def _corrected(snapshot: CatalogSnapshot, filters: Filters, words: Collection[str]) -> Iterator[Correction]:
    for word in words:
        held = snapshot.holding(neighbours(word), filters, most=MOST_TEXTS)
        texts = {near: holding.content_ids for near, holding in held.items() if holding.content_ids}
        if not texts:
            continue
        # The most frequent; of equally frequent ones the first by letters, so that every store says the same.
        best = min(texts, key=lambda near: (-len(texts[near]), near))
        views = snapshot.hydrate(texts[best][:SHOWN_TEXTS], filters)
        searched = closest_word(word, (view.text for view in views if view), best)
        if is_likelier(searched, word, _count_pieces):
            yield Correction(word=word, searched=searched)


def _count_pieces(word: str) -> int:
    """Number of pieces of a word; without the vocabulary a constant, so every word may be misspelt."""
    from penstock.pipeline.embed.protocol import count_tokens

    try:
        return count_tokens(word)
    except InvalidSetting:
        return WORD_PIECES + 1
