"""Prose extractor: names and recurring noun phrases, related by where they stand together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from penstock.catalog.entities import Entity, Extraction, Relation
from penstock.named_tuple import NamedTuple
from penstock.pipeline.graph.names import DATE, NAME, ORGANISATION, PERSON, PLACE, QUANTITY, spans
from penstock.pipeline.graph.protocol import GraphDocument
from penstock.pipeline.graph.tokens import Token, sentences
from penstock.pipeline.graph.words import FUNCTION_WORDS

RELATED = "related"
TERM = "term"

PAIR_WEIGHTS = {
    frozenset((PERSON, ORGANISATION)): 1.0,
    frozenset((PERSON, PLACE)): 1.0,
    frozenset((ORGANISATION, PLACE)): 1.0,
    frozenset((PLACE,)): 1.0,
    frozenset((NAME, PLACE)): 0.7,
    frozenset((NAME, PERSON)): 0.7,
    frozenset((NAME, ORGANISATION)): 0.7,
    frozenset((NAME,)): 0.7,
}
"""Weight of two neighbouring names in a sentence, by their kinds."""
OTHER_PAIR = 0.6
MIN_WEIGHT = 0.5
"""Least sum of weights of a relation in a chunk. Chosen on the development part of CoNLL04."""
MAX_DISTANCE = 6
"""Farthest names of a sentence that are related, counted in names."""
_TERM_WORDS = (3, 2)
_MAX_TERMS = 20
"""Noun phrases of a chunk, the most frequent ones."""


class ProseExtractor:
    """Names by capital letters, recurring noun phrases of a chunk, and weighted co-occurrence."""

    name = "prose"
    version = 1

    def extract(self, document: GraphDocument, wanted: Sequence[int]) -> list[Extraction]:
        return [extract_text(document.chunks[at].text) for at in wanted]


class _Placed(NamedTuple):
    """An entity in a sentence. ``likely``: the kind, or a guess."""

    at: int
    entity: Entity
    likely: str


def extract_text(text: str) -> Extraction:
    """Entities and relations of one chunk of prose."""
    split = sentences(text)
    is_common = _common_words(split)
    terms = _terms(split)
    placed = [sorted([*_names_in(text, tokens, is_common), *_terms_in(tokens, terms)]) for tokens in split]
    kinds = _one_kind_each(placed)
    entities: Counter[Entity] = Counter()
    weights: dict[tuple[Entity, Entity], float] = defaultdict(float)
    for found in placed:
        same = [one._replace(entity=kinds[one.entity.name.casefold()]) for one in found]
        entities.update(one.entity for one in same)
        _relate(same, weights)
    relations = [
        Relation(source, RELATED, target, round(weight, 3))
        for (source, target), weight in weights.items()
        if weight >= MIN_WEIGHT
    ]
    return Extraction(entities, relations)


def _names_in(text: str, tokens: Sequence[Token], is_common: Callable[[str], bool]) -> Iterator[_Placed]:
    for span in spans(tokens, is_common):
        name = " ".join(text[tokens[span.first].start : tokens[span.last].end].split())
        yield _Placed(span.first, Entity(name, span.kind), span.likely)


def _one_kind_each(placed: Sequence[Sequence[_Placed]]) -> dict[str, Entity]:
    """One entity for each name of the chunk: the first kind found other than a plain name."""
    kinds: dict[str, Entity] = {}
    for found in placed:
        for one in found:
            key = one.entity.name.casefold()
            if key not in kinds or kinds[key].kind == NAME:
                kinds[key] = one.entity
    return kinds


def _common_words(split: Sequence[Sequence[Token]]) -> Callable[[str], bool]:
    lower = {token.text for tokens in split for token in tokens if token.text.islower()}
    return lower.__contains__


def _relate(placed: Sequence[_Placed], weights: dict[tuple[Entity, Entity], float]) -> None:
    """Add to the weight of each pair in a sentence: more for related kinds, less at a distance."""
    names = [one for one in placed if one.likely not in (DATE, QUANTITY)]
    for at, source in enumerate(names):
        for distance, target in enumerate(names[at + 1 : at + 1 + MAX_DISTANCE], 1):
            if source.entity != target.entity:
                weight = PAIR_WEIGHTS.get(frozenset((source.likely, target.likely)), OTHER_PAIR)
                pair = (source.entity, target.entity)
                weights[pair if pair[::-1] not in weights else pair[::-1]] += weight / distance


# Noun phrases.


def _terms(split: Sequence[Sequence[Token]]) -> frozenset[tuple[str, ...]]:
    """Phrases of two or three plain words with at least two occurrences in the chunk.

    A phrase inside a longer one counts only where it stands alone as well.
    """
    counts = Counter(phrase for tokens in split for run in _runs(tokens) for phrase in _phrases(run))
    for phrase, count in list(counts.items()):
        if len(phrase) == max(_TERM_WORDS) and count > 1:
            for part in (phrase[1:], phrase[:-1]):
                counts[part] -= count
    recurring = [(phrase, count) for phrase, count in counts.most_common() if count > 1]
    return frozenset(phrase for phrase, _ in recurring[:_MAX_TERMS])


def _runs(tokens: Sequence[Token]) -> list[list[str]]:
    """Consecutive plain words, with one space between."""
    runs: list[list[str]] = []
    end = -1
    for token in tokens:
        if _is_term_word(token):
            if token.start - end == 1 and runs:
                runs[-1].append(token.text)
            else:
                runs.append([token.text])
            end = token.end
    return runs


def _phrases(run: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in _TERM_WORDS:
        for at in range(len(run) - size + 1):
            inside = tuple(run[at : at + size])
            if not inside[-1].endswith(("ly", "ed", "ing")) and not inside[0].endswith("ly"):
                yield inside


def _is_term_word(token: Token) -> bool:
    text = token.text
    return len(text) > 2 and text.islower() and text.isalpha() and text not in FUNCTION_WORDS


def _terms_in(tokens: Sequence[Token], terms: frozenset[tuple[str, ...]]) -> list[_Placed]:
    found: list[_Placed] = []
    if not terms:
        return found
    at = 0
    while at < len(tokens):
        for size in _TERM_WORDS:
            phrase = tuple(token.text for token in tokens[at : at + size])
            if phrase in terms:
                found.append(_Placed(at, Entity(" ".join(phrase), TERM), TERM))
                at += size - 1
                break
        at += 1
    return found
