"""Suggestions for an unknown name: similar short names of entities."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from penstock.catalog.rules.words import HUMP, STOP_WORDS
from penstock.named_tuple import NamedTuple

LOOKED_AT = 2_000
"""Names compared with one name, in their order."""
_LIKE = 0.7
_LONGEST = 64
"""Characters of a name that are compared. A comparison takes time that grows with their square."""
_AFTER_ALL = "\U0010ffff"


def asked_names(name: str) -> list[str]:
    """The name in comparable form, and the last part of a dotted name or a path."""
    whole = " ".join(name.split()).casefold()
    last = re.split(r"[./#]", whole)[-1]
    return [part[:_LONGEST] for part in dict.fromkeys((whole, last)) if part]


def beginnings(asked: Sequence[str]) -> list[tuple[str, str]]:
    """Ranges of names to look at: those with the first letters, and those with the first letter only."""
    starts = dict.fromkeys(name[:length] for name in asked for length in (3, 1))
    return [(start, start + _AFTER_ALL) for start in starts]


def most_alike(asked: Sequence[str], names: Iterable[str], limit: int) -> list[str]:
    """Names starting with a wanted one, the shortest first; then names with similar letters."""
    from difflib import SequenceMatcher

    found: dict[str, tuple[float, int, str]] = {}
    for wanted in asked:
        matcher = SequenceMatcher(b=wanted, autojunk=False)
        for name in names:
            if name.startswith(wanted):
                found[name] = min((0.0, len(name), name), found.get(name, (2.0, 0, "")))
            elif abs(len(name) - len(wanted)) <= 3:
                matcher.set_seq1(name)
                if matcher.quick_ratio() >= _LIKE and (ratio := matcher.ratio()) >= _LIKE:
                    found[name] = min((1 - ratio, len(name), name), found.get(name, (2.0, 0, "")))
    return sorted(found, key=found.__getitem__)[:limit]


# Nodes and edges of the graph, as readers get them.


class Node(NamedTuple):
    """An entity of the graph with the number of occurrences in published documents."""

    id: int
    name: str
    kind: str
    occurrences: int


class Edge(NamedTuple):
    """All relations of one kind between two entities. ``weight``: the sum of their weights."""

    source: int
    target: int
    kind: str
    weight: float


class Neighbourhood(NamedTuple):
    """Nodes around an entity with their distance from it, and the edges between these nodes."""

    nodes: list[tuple[Node, int]]
    edges: list[Edge]


# Graph expansion of a search: from entities to chunks along relations. Pure.
#
# It starts at the entities that a query names, or at those of its best hits. A query may ask for a relation,
# as in "who calls open_gate" or "subclasses of Mill". Then only such relations are followed, in the
# direction that is asked for. Otherwise relations of all kinds but ``defines``, ``contains`` and ``imports``
# are: these lead to everything that stands in the same file.


NAME_WORDS = 4
"""Words of the longest name that is looked for in a query."""
MOST_NAMES = 64
MOST_NAMESAKES = 16
"""Entities with one name. More than so many are not meant: each class has a method ``__init__``."""
SEED_HITS = 3
"""Best hits whose entities are starts."""
SEED_ENTITIES = 8
"""Entities of a hit that are starts."""
MOST_RELATIONS = 200
"""Relations read at each start, in each direction."""
MOST_REACHED = 200
"""Entities whose own chunks are looked up."""
MOST_CHUNKS = 20
"""Chunks of each of them."""
SHORT_QUERY = 3
"""Words of a query that asks for a relation by a verb and a name alone."""
PLAIN_WORD = 0.3
"""Certainty that a plain word of a query is meant as the name of an entity."""
HIT_SHARE = 0.5
"""Weight of an entity of the best hit beside one that the query names."""

_FILE_KINDS = frozenset(("defines", "contains", "imports"))
_USES = ("calls", "imports", "inherits")
_VERBS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("call calls calling invoke invokes".split(), ("calls",)),
    **dict.fromkeys("use uses using".split(), _USES),
    **dict.fromkeys("inherit inherits extend extends subclass derives".split(), ("inherits",)),
    **dict.fromkeys("import imports depends".split(), ("imports",)),
}
_TURNED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("called invoked callee callees".split(), ("calls",)),
    **dict.fromkeys("used".split(), _USES),
    **dict.fromkeys("inherited extended subclassed superclass superclasses".split(), ("inherits",)),
    **dict.fromkeys("imported dependency dependencies".split(), ("imports",)),
}
"""Words that turn the direction: "called by X" asks for what "X calls"."""
_NOUNS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("caller callers".split(), ("calls",)),
    **dict.fromkeys("usage usages".split(), _USES),
    **dict.fromkeys("subclass subclasses".split(), ("inherits",)),
    **dict.fromkeys("importer importers".split(), ("imports",)),
}
_OTHER_NOUNS = frozenset("callee callees superclass superclasses dependency dependencies".split())
_RELATION_NOUNS = _NOUNS.keys() | _OTHER_NOUNS
"""Nouns name one end of a relation, wherever they stand."""
_QUESTION = frozenset("who what which where".split())
_TOKEN = re.compile(r"\w+(?:[./:]+\w+)*")


class QueryName(NamedTuple):
    """A part of a query, possibly the name of an entity. ``at``: the number of the first word."""

    name: str
    at: int
    certainty: float

    @property
    def last(self) -> str:
        """The last part of a dotted name or a path, by which entities are looked up."""
        return re.split(r"[./:]+", self.name)[-1]


class AskedRelation(NamedTuple):
    """Kinds of relations asked for by a query. ``incoming``: relations to the entity, not from the entity."""

    kinds: tuple[str, ...]
    incoming: bool


class GraphRelation(NamedTuple):
    """A relation in a text."""

    content_id: int
    source: int
    target: int
    kind: str


class GraphMatch(NamedTuple):
    """Score of a chunk found by the graph, up to 1, and the relation that was followed."""

    score: float
    source: int
    kind: str
    target: int


def query_names(query: str) -> list[QueryName]:
    """Parts of a query that may be names, in lower case: single words, and some words in a row."""
    words = _TOKEN.findall(query)[:MOST_NAMES]
    found: dict[str, QueryName] = {}
    for size in range(NAME_WORDS, 0, -1):
        for at in range(len(words) - size + 1):
            part = words[at : at + size]
            name = " ".join(part).casefold()
            if size == 1 and not _may_name(name):
                continue
            if {part[0].lower(), part[-1].lower()} & STOP_WORDS:
                continue
            certainty = 1.0 if size > 1 or _is_identifier(part[0], at) else PLAIN_WORD
            found.setdefault(name, QueryName(name, at, certainty))
    return list(found.values())[: 4 * MOST_NAMES]


def _may_name(word: str) -> bool:
    return len(word) > 2 and word not in STOP_WORDS and word not in _RELATION_WORDS


def _is_identifier(word: str, at: int) -> bool:
    """Check whether a word is written as people write names: with a sign, a digit or a capital inside."""
    inside = any(not letter.isalpha() for letter in word) or len(HUMP.split(word)) > 1
    return inside or (at > 0 and word[0].isupper())


_RELATION_WORDS = _VERBS.keys() | _TURNED.keys() | _NOUNS.keys()


def asked_relation(query: str, named_at: int | None) -> AskedRelation | None:
    """The relation asked for by a query; None for other queries.

    ``named_at``: the number of the word that names an entity for sure. The rule is strict: most sentences
    with "calls" or "used" in them ask for no relation.
    """
    words = [word.lower() for word in _TOKEN.findall(query)[:MOST_NAMES]]
    for at, word in enumerate(words):
        kinds = _NOUNS.get(word) or _VERBS.get(word) or _TURNED.get(word)
        if kinds is not None and at != named_at and _asks(words, at, named_at):
            return AskedRelation(kinds, _incoming(words, at, named_at))
    return None


def _incoming(words: Sequence[str], at: int, named_at: int | None) -> bool:
    """Check whether relations to the entity are meant: "who calls it", but not "what does it call"."""
    word = words[at]
    if word in _RELATION_NOUNS:
        return word in _NOUNS
    before = at < (len(words) - 1 if named_at is None else named_at)
    return before != (word in _TURNED)


def _asks(words: Sequence[str], at: int, named_at: int | None) -> bool:
    """Check whether the word at a place asks for a relation.

    It is a noun ("callers of …"), stands near a question word ("who calls …"), or before "by" ("called by
    …"). Beside a name two words are enough ("calls open_gate").
    """
    named = named_at is not None
    asked_at = next((place for place, word in enumerate(words[:3]) if word in _QUESTION), None)
    near = named or (asked_at is not None and 0 < at - asked_at <= 3)
    return (
        (words[at] in _RELATION_NOUNS and (named or at < 3))
        or (asked_at is not None and near)
        or (words[at + 1 : at + 2] == ["by"] and (named_at == at + 2 or at < 2))
        or (named and len(words) <= SHORT_QUERY)
    )


def is_named(asked: QueryName, name: str, short: str) -> bool:
    """Check whether an entity has this name: the whole, or the last parts of a dotted name or a path."""
    whole = name.casefold()
    return asked.name in (whole, short) or (
        asked.name != asked.last and re.search(rf"[./#]{re.escape(asked.name)}\Z", whole) is not None
    )


def is_alias(name: str, other: str) -> bool:
    """Check whether two dotted names end alike, with one package containing the other."""
    owner, _, last = name.rpartition(".")
    other_owner, _, other_last = other.rpartition(".")
    if last != other_last or owner == other_owner or not owner or not other_owner:
        return False
    return owner.startswith(f"{other_owner}.") or other_owner.startswith(f"{owner}.")


def followed(
    start: int, relations: Iterable[GraphRelation], asked: AskedRelation | None
) -> list[GraphRelation]:
    """The relations of a start to be followed."""
    if asked is None:
        return [one for one in relations if one.kind not in _FILE_KINDS]
    return [
        one
        for one in relations
        if one.kind in asked.kinds and (one.target if asked.incoming else one.source) == start
    ]


def other_end(start: int, relation: GraphRelation) -> int:
    return relation.target if relation.source == start else relation.source


def expand(
    starts: Mapping[int, float],
    relations: Mapping[int, Sequence[GraphRelation]],
    own_chunks: Mapping[int, Sequence[int]],
    asked: AskedRelation | None,
) -> dict[int, GraphMatch]:
    """Score chunks at the end of relations, by the best relation.

    ``relations``: those followed at each start. ``own_chunks``: the chunks of entities that were reached, in
    which they are defined or talked about. A start with many relations tells less of each, unless they are
    what is asked for.
    """
    found: dict[int, GraphMatch] = {}

    def add(content_id: int, score: float, relation: GraphRelation) -> None:
        known = found.get(content_id)
        if known is None or (known.score, -known.source, -known.target) < (
            score,
            -relation.source,
            -relation.target,
        ):
            found[content_id] = GraphMatch(score, relation.source, relation.kind, relation.target)

    for start, weight in starts.items():
        here = relations.get(start, ())
        score = weight if asked is not None else weight / (1 + math.log(max(len(here), 1)))
        for relation in here:
            leads_away = relation.source == start
            if asked is None or not leads_away:
                # The text of a relation to the start is that of its other end.
                add(relation.content_id, score, relation)
            if asked is None or leads_away:
                for content_id in own_chunks.get(other_end(start, relation), ()):
                    add(content_id, score, relation)
    return found


def start_weights(
    named: Mapping[int, float], of_hits: Sequence[tuple[float, Sequence[int]]], asked: AskedRelation | None
) -> dict[int, float]:
    """Weights of the entities to start at. ``of_hits``: the share of the best score and the entities of hits.

    Where a relation of a named entity is asked for, the hits are no starts.
    """
    sure = {number: weight for number, weight in named.items() if weight > PLAIN_WORD}
    if asked is not None and sure:
        return sure
    starts = dict(named)
    for share, entities in of_hits:
        for number in entities[:SEED_ENTITIES]:
            weight = HIT_SHARE * share / math.sqrt(len(entities))
            starts[number] = max(starts.get(number, 0.0), weight)
    return starts


# Walks through a graph whose edges are read step by step: neighbourhoods and shortest paths. Pure.


MAX_SEEN = 100_000
"""Entities looked at for a path."""
EDGES_AT_ONCE = 10_000
"""Edges read in one step of a walk, the heaviest first."""

EdgesOf: TypeAlias = Callable[[Collection[int]], Sequence[Edge]]
"""The edges at some entities, heaviest first."""
NodesOf: TypeAlias = Callable[[Collection[int]], Sequence[Node]]


def neighbourhood(
    start: Sequence[int], edges_of: EdgesOf, nodes_of: NodesOf, *, hops: int, limit: int
) -> Neighbourhood:
    """The entities within some relations of these, in either direction; nearest and heaviest first."""
    distances = dict.fromkeys(start, 0)
    frontier = set(start)
    kept: set[Edge] = set()
    for distance in range(1, hops + 1):
        for edge in edges_of(frontier):
            kept.add(edge)
            for end in (edge.source, edge.target):
                if end not in distances and len(distances) < limit + len(start):
                    distances[end] = distance
        frontier = {number for number, far in distances.items() if far == distance}
    nodes = {node.id: node for node in nodes_of(distances)}
    edges = [edge for edge in kept if edge.source in nodes and edge.target in nodes]
    edges.sort(key=heaviest)
    return Neighbourhood([(nodes[one], far) for one, far in distances.items() if one in nodes], edges)


def shortest_path(sources: Sequence[int], targets: Sequence[int], edges_of: EdgesOf) -> list[Edge] | None:
    """Find a shortest path between two groups of entities, in either direction; None without a path."""
    wanted = set(targets)
    if wanted & set(sources):
        return []
    came_by: dict[int, tuple[int, Edge] | None] = dict.fromkeys(sources)
    frontier = set(sources)
    while frontier and len(came_by) < MAX_SEEN:
        reached: set[int] = set()
        for edge in edges_of(frontier):
            for here, there in ((edge.source, edge.target), (edge.target, edge.source)):
                if here in frontier and there not in came_by:
                    came_by[there] = (here, edge)
                    reached.add(there)
        ends = sorted(reached & wanted)
        if ends:
            return _way(came_by, ends[0])
        frontier = reached
    return None


def heaviest(edge: Edge) -> tuple[float, int, int, str]:
    """Sort key: heaviest first, then by ends and kind."""
    return -edge.weight, edge.source, edge.target, edge.kind


def _way(came_by: Mapping[int, tuple[int, Edge] | None], end: int) -> list[Edge]:
    edges: list[Edge] = []
    step = came_by[end]
    while step is not None:
        before, edge = step
        edges.append(edge)
        step = came_by[before]
    return edges[::-1]
