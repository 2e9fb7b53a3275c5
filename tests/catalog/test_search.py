"""Search: published generations only, in one snapshot."""

from __future__ import annotations

import array
import re
from collections.abc import Callable

import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Filters, Holding, NewPage, Place, Removal
from penstock.errors import InvalidRequest, InvalidText
from tests.catalog.conftest import DOCS, VECTOR, at, begin, chunk, found, generation, page, put, read, sweep

ACME = Filters(tenant_id="acme")


def test_the_best_match_comes_first_with_its_terms_marked(catalog: Catalog):
    put(catalog, "/a.md", page("a long text about water, mills and many other things besides"))
    put(catalog, "/b.md", page("water mills"))
    put(catalog, "/c.md", page("nothing of that kind"))

    with catalog.snapshot() as snapshot:
        hits = snapshot.keyword("mill water", ACME, marks=("<b>", "</b>"))
        views = snapshot.hydrate([hit.content_id for hit in hits])

    assert ["/b.md", "/a.md"] == [view.path for view in views if view]
    assert "<b>water</b> <b>mills</b>" == hits[0].snippet
    assert hits[0].score > hits[1].score


def test_a_name_that_is_no_text_is_refused_and_leaves_the_catalog_usable(catalog: Catalog):
    put(catalog, "/a.md", page("water mills"))

    for _ in range(2):
        with pytest.raises(InvalidText), catalog.snapshot() as snapshot:
            snapshot.get("\ud800")

    assert 1 == len(found(catalog, "water"))


def test_chunks_that_hold_a_word_are_those_of_the_tenant(catalog: Catalog):
    put(catalog, "/a.md", page("water mills"))
    put(catalog, "/b.md", page("the mill"))
    put(catalog, "/c.md", page("a turbine"), place=Place("other", "docs"))

    with catalog.snapshot() as snapshot:
        held = snapshot.holding(["mill", "turbine", "gate", "!"], ACME, most=10)
        (cut,) = snapshot.holding(["mill"], ACME, most=1).values()
        paths = [view.path for view in snapshot.hydrate(held["mill"].content_ids) if view]

    assert ({"mill", "turbine"}, ["/a.md", "/b.md"]) == (set(held), paths)
    assert Holding([], False) == held["turbine"]
    assert (1, True) == (len(cut.content_ids), cut.cut)


@pytest.mark.parametrize(
    ("glob", "matches", "others"),
    [
        ("/src/*.py", ["/src/a.py", "/src/b/c.py"], ["/src/a.pyc", "x/src/a.py"]),
        ("/a?c", ["/abc", "/a\nc"], ["/ac", "/abbc"]),
        ("/[a-c]x", ["/bx"], ["/dx"]),
        ("/[^a-c]x", ["/dx"], ["/ax"]),
        ("/[!a-c]x", ["/!x", "/dx"], ["/ax"]),
        ("/[]]x", ["/]x"], ["/ax"]),
        ("/(a|b).+$", ["/(a|b).+$"], ["/a.+"]),
        ("/[z-a]", [], ["/z", "/a", "/-"]),
        ("/a\\b", ["/a\\b"], ["/ab"]),
        ("/[", ["/["], ["/"]),
        ("**ä**b*", ["/ä/b", "äb"], ["/b/ä"]),
        ("/A*", ["/Ab"], ["/ab"]),
        ("*a*a*a*a*a*a*b*", ["/aaaaaab"], ["/" + "a" * 200]),
        ("*" * 4_095 + "z", ["/z"], ["/a"]),
    ],
)
def test_a_path_filter_means_the_same_in_every_store(
    catalog: Catalog, glob: str, matches: list[str], others: list[str]
):
    for path in matches + others:
        put(catalog, path, page("water"))

    with catalog.snapshot() as snapshot:
        sources = snapshot.sources(Filters(tenant_id="acme", path=glob), after="", limit=50)
        keys = snapshot.matching(Filters(tenant_id="acme", path=glob))

    assert (sorted(matches), len(matches)) == (sorted(source.path for source in sources), len(keys or ()))


def test_a_filter_leaves_the_ranking_of_those_that_pass(catalog: Catalog):
    """Whether few documents pass or most; the best ranks are removed or of another tenant."""
    for number in range(40):
        put(catalog, f"/a{number}.md", page(f"water {number} " + "and more " * (40 - number)))
    put(catalog, "/c.md", page("water"), place=Place("other", "docs"))
    catalog.remove(Removal(tenant_id="acme", asked_at=at(5), path="/a39.md"))

    with catalog.snapshot() as snapshot:
        every = [hit.content_id for hit in snapshot.keyword("water", ACME, limit=100)]
        assert 39 == len(every)
        for glob in ("/a7*", "/a1*", "/a[1-3]*", "/a*", "*", "/b*"):
            narrowed = Filters(tenant_id="acme", path=glob)
            seen = snapshot.visible(narrowed, every)
            wanted = [content_id for content_id in every if content_id in seen]
            for limit in (1, 100):
                hits = snapshot.keyword("water", narrowed, limit=limit)
                assert wanted[:limit] == [hit.content_id for hit in hits]


def test_a_path_filter_longer_than_any_path_is_refused(catalog: Catalog):
    with pytest.raises(InvalidRequest), catalog.snapshot() as snapshot:
        snapshot.sources(Filters(tenant_id="acme", path="a" * 4_097), after="", limit=1)


def test_words_are_stemmed_and_folded(catalog: Catalog):
    put(catalog, "/a.md", page("The Résumé of penstocks"))

    assert 1 == len(found(catalog, "resume"))
    assert 1 == len(found(catalog, "PENSTOCK"))


@pytest.mark.parametrize(
    "query",
    [
        "NEAR(a b)",
        'un"closed',
        "col:umn",
        "a AND",
        "NOT x",
        "*",
        '""',
        "^",
        "a-b",
        "(",
        "'",
        "",
        " ",
        "\0",
        "+",
        "é OR",
        "NOT alpha",
        "alpha AND missing",
        "missing:alpha",
        "^alpha*",
    ],
)
def test_nothing_in_a_query_is_an_operator(catalog: Catalog, query: str):
    put(catalog, "/a.md", page("alpha"))

    asked_for = "alpha" in re.findall(r"\w+", query.lower())
    assert ({"alpha"} if asked_for else set()) == found(catalog, query)


def test_quoted_words_are_a_phrase(catalog: Catalog):
    put(catalog, "/a.md", page("red green blue", "green red blue"))

    assert {"red green blue"} == found(catalog, '"red green"')


def test_quoted_phrases_are_required_and_other_words_are_not(catalog: Catalog):
    put(catalog, "/a.md", page("red green blue", "green red blue", "red green wheel blue mill", "mill wheel"))

    assert {"red green blue", "red green wheel blue mill"} == found(catalog, '"red green" wheel mill')
    assert {"red green wheel blue mill"} == found(catalog, '"red green" "blue mill" wheel')
    assert set() == found(catalog, '"red green" "wheel mill"')


CAMEL, SNAKE = "maxHeaderSize = HTTPServer.limit", "water_wheel = 3"
JAPANESE, CHINESE, THAI = "大きな水車小屋がある", "流体与水力学研究", "กังหันน้ำและระหัดวิดน้ำ"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("header size", CAMEL),
        ("maxHeaderSize", CAMEL),
        ("HTTPServer", CAMEL),
        ("waterWheel", SNAKE),
        ("水車", JAPANESE),
        ("小屋", JAPANESE),
        ("水力学", CHINESE),
        ("ระหัด", THAI),
    ],
)
def test_words_inside_a_name_or_a_run_without_spaces_are_found(catalog: Catalog, query: str, text: str):
    for number, each in enumerate((CAMEL, SNAKE, JAPANESE, CHINESE, THAI)):
        put(catalog, f"/{number}.md", page(each))

    assert {text} == found(catalog, query)

    with catalog.snapshot() as snapshot:
        (hit,) = snapshot.keyword(query, ACME)
        assert {hit.content_id: tuple(query.lower().split())} == snapshot.words_in(query, [hit.content_id])


def test_what_compound_words_add_to_the_index_goes_with_the_text(catalog: Catalog):
    put(catalog, "/a.md", page("maxHeaderSize 水車小屋"))
    catalog.remove(Removal(tenant_id="acme", asked_at=at(5), path="/a.md"))
    sweep(catalog)

    assert set() == found(catalog, "header")
    assert set() == found(catalog, "水車")
    assert [] == catalog.check()


def test_filters_narrow_by_place_path_type_and_tag(catalog: Catalog):
    put(catalog, "/docs/a.md", page("word one"), file_type="document", tags=("team/red", "x"))
    put(catalog, "/src/b.py", page("word two"), file_type="code", tags=("team",))
    put(catalog, "/src/c.py", page("word three"), file_type="code", place=Place("acme", "other", "dev"))
    put(catalog, "/src/d.py", page("word four"), place=Place("elsewhere", "docs"))

    assert {"word one", "word two", "word three"} == found(catalog, "word")
    assert {"word two", "word three"} == found(catalog, "word", path="/src/*.py")
    assert {"word one"} == found(catalog, "word", file_type="document")
    assert {"word three"} == found(catalog, "word", collection="other", branch="dev")
    assert {"word one", "word two"} == found(catalog, "word", tag="team")
    assert {"word one"} == found(catalog, "word", tag="team/red")
    assert set() == found(catalog, "word", tag="tea")


def test_a_rare_tenant_is_found_behind_many_others(catalog: Catalog):
    for n in range(5):
        catalog.store(
            [
                generation(f"/{n}-{m}.md", page(f"water {n} {m}"), place=Place("big", "docs"))
                for m in range(40)
            ]
        )
    put(catalog, "/mine.md", page("water and a good deal of other words, so that it ranks last"))

    assert 1 == len(found(catalog, "water"))


def test_only_published_chunks_are_found(catalog: Catalog):
    put(catalog, "/a.md", page("old water"))
    put(catalog, "/a.md", page("new water"), asked_at=at(1))
    begin(catalog, "/b.pdf")
    read(catalog, "unseen water")

    assert {"new water"} == found(catalog, "water")
    sweep(catalog)
    assert {"new water"} == found(catalog, "water")


def test_a_hit_has_its_place_in_the_document(catalog: Catalog):
    piece = chunk("body", first_line=3, last_line=9, heading_path="Intro > Why", symbols="f g")
    put(catalog, "/a.md", page("head"), NewPage(number=2, chunks=(piece,)), title="A title", tags=("t",))

    with catalog.snapshot() as snapshot:
        (hit,) = snapshot.keyword("body", ACME)
        (view, nothing) = snapshot.hydrate([hit.content_id, 10**9])

    assert None is nothing
    assert view is not None
    assert (2, 2, 0, 0, 4, 3, 9) == (
        view.page_number,
        view.page_count,
        view.chunk_index,
        view.start,
        view.end,
        view.first_line,
        view.last_line,
    )
    assert ("Intro > Why", "f g", "A title", ("t",)) == (
        view.heading_path,
        view.symbols,
        view.title,
        view.tags,
    )


def test_vectors_are_loaded_ready_for_numpy(catalog: Catalog):
    put(catalog, "/a.md", page("one", "two"))
    put(catalog, "/b.md", page("three", vector=b"\x01\x02\x03\x04" * 4))

    with catalog.snapshot() as snapshot:
        (batch,) = snapshot.load("acme", "static")
        ids, keys = array.array("q", batch.content_ids), array.array("q", batch.family_keys)
        texts = {view.text: key for view, key in zip(snapshot.hydrate(ids), keys, strict=True) if view}
        (only,) = snapshot.load("acme", "static", [texts["three"]])
        assert [] == list(snapshot.load("acme", "unknown"))
        assert [] == list(snapshot.load("nobody", "static"))

    assert 3 * len(VECTOR) == len(batch.vectors)
    assert texts["one"] == texts["two"] != texts["three"]
    assert b"\x01\x02\x03\x04" * 4 == only.vectors


def test_a_cache_is_brought_up_to_a_snapshot_by_what_changed(catalog: Catalog):
    catalog.store([generation(f"/{n}.md", page(f"text {n}")) for n in range(4)])
    cache, sleeper = _Cache(), _Cache()
    cache.update(catalog)
    sleeper.update(catalog)

    put(catalog, "/0.md", page("edited", "longer"), asked_at=at(1))
    catalog.remove(Removal(tenant_id="acme", path="/1.md", asked_at=at(1)))
    put(catalog, "/5.md", page("new"))
    assert 3 == cache.update(catalog)
    sweep(catalog)
    assert 0 == cache.update(catalog)
    # The removed source's row is gone by now; one that was not told before learns of it all the same.
    assert 3 == sleeper.update(catalog)


class _Cache:
    """The vectors cached in memory, compared with a fresh read."""

    def __init__(self) -> None:
        self._sequence: int | None = None
        self._owners: dict[int, int] = {}

    def update(self, catalog: Catalog) -> int:
        with catalog.snapshot() as snapshot:
            changes = snapshot.changes("acme", self._sequence)
            if changes.reload:
                self._owners.clear()
            self._owners = {i: key for i, key in self._owners.items() if key not in changes.stale}
            self._take(snapshot.load("acme", "static", None if changes.reload else changes.fresh))
            self._sequence = changes.sequence
            mine, self._owners = self._owners, {}
            self._take(snapshot.load("acme", "static"))
        assert mine == self._owners
        return len(changes.stale)

    def _take(self, batches) -> None:
        for batch in batches:
            keys = array.array("q", batch.family_keys)
            self._owners |= dict(zip(array.array("q", batch.content_ids), keys, strict=True))


def test_matching_sources_narrow_a_scan(catalog: Catalog):
    put(catalog, "/a.md", page("one"))
    put(catalog, "/b.py", page("two"))

    with catalog.snapshot() as snapshot:
        assert None is snapshot.matching(ACME)
        (key,) = snapshot.matching(Filters(tenant_id="acme", path="*.py")) or []
        (batch,) = snapshot.load("acme", "static", [key])
    assert 8 == len(batch.content_ids)


def test_a_snapshot_does_not_see_what_happens_after_it(opened: Callable[[], Catalog]):
    reader, writer = opened(), opened()
    put(writer, "/a.md", page("before"))

    with reader.snapshot() as snapshot:
        first = snapshot.keyword("before after", ACME)
        put(writer, "/a.md", page("after"), asked_at=at(1))
        sweep(writer)
        second = snapshot.keyword("before after", ACME)
        assert ["before"] == [
            view.text for view in snapshot.hydrate([hit.content_id for hit in second]) if view
        ]
        with reader.snapshot() as another:
            assert first != another.keyword("before after", ACME)

    assert first == second


def test_sources_are_listed_by_id(catalog: Catalog):
    catalog.store([generation(f"/{n}.md", page(f"text {n}")) for n in range(5)])
    begin(catalog, "/unseen.pdf")

    with catalog.snapshot() as snapshot:
        first = snapshot.sources(ACME, limit=3)
        rest = snapshot.sources(ACME, after=first[-1].source_id)
        assert first[0] == snapshot.get(first[0].source_id) == snapshot.find(DOCS, first[0].path)

    assert {f"/{n}.md" for n in range(5)} == {source.path for source in first + rest}


def test_the_words_of_a_query_in_a_chunk_are_compared_as_keyword_search_does(catalog: Catalog):
    put(catalog, "/a.md", page("The wheels of a water mill turn slowly"))
    put(catalog, "/b.md", page("Grain is turned into flour"))
    put(catalog, "/c.md", page("nothing of that kind"))

    with catalog.snapshot() as snapshot:
        hits = snapshot.keyword("wheel turning kind", ACME)
        views = snapshot.hydrate([hit.content_id for hit in hits])
        paths = {view.content_id: view.path for view in views if view}
        query = 'how is the Wheel turning "water mill" "mill water" tide wheel'
        words = {paths[number]: words for number, words in snapshot.words_in(query, list(paths)).items()}
        none = snapshot.words_in("???", list(paths)), snapshot.words_in("wheel", [])

    assert {"/a.md": ("water mill", "wheel", "turning"), "/b.md": ("turning",)} == words
    assert ({}, {}) == none
