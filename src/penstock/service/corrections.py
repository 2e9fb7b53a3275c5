"""Corrections of misspelt words: only of words that no document of the tenant has."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from penstock.catalog.protocol import CatalogSnapshot
from penstock.catalog.rules.near_words import closest_word, is_correctable, neighbours
from penstock.catalog.rules.query_terms import words_outside_quotes
from penstock.catalog.views import Filters

MOST_CORRECTIONS = 3
"""Misspelt words looked up in one query: a text in another language has many unknown words."""
MOST_TEXTS = 200
"""Texts looked at for each word. A word in more of them is frequent enough to be meant."""
SHOWN_TEXTS = 5
"""Texts read to find the form of a word that they have."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A word of a query, and the word that was searched for instead."""

    word: str
    searched: str


def corrections(
    snapshot: CatalogSnapshot, query: str, filters: Filters, found: Collection[str]
) -> list[Correction]:
    """Correct the words of a query that occur nowhere. ``found``: words known to occur, in lower case."""
    doubtful = [
        word
        for word in words_outside_quotes(query)
        # A capital inside a query begins a name, and names are like other words by chance.
        if (word[0].islower() or query.lstrip().startswith(word))
        and word.lower() not in found
        and is_correctable(word)
    ]
    if not doubtful:
        return []
    whole_tenant = Filters(tenant_id=filters.tenant_id)
    known = snapshot.holding(doubtful, whole_tenant, most=MOST_TEXTS)
    missing = [word for word in doubtful if word not in known or known[word] == ([], False)]
    return list(_corrected(snapshot, filters, missing[:MOST_CORRECTIONS]))


def _corrected(snapshot: CatalogSnapshot, filters: Filters, words: Collection[str]) -> Iterator[Correction]:
    for word in words:
        held = snapshot.holding(neighbours(word), filters, most=MOST_TEXTS)
        texts = {near: holding.content_ids for near, holding in held.items() if holding.content_ids}
        if not texts:
            continue
        # The most frequent; of equally frequent ones the first by letters, so that every store says the same.
        best = min(texts, key=lambda near: (-len(texts[near]), near))
        views = snapshot.hydrate(texts[best][:SHOWN_TEXTS])
        yield Correction(word=word, searched=closest_word(word, (view.text for view in views if view), best))
