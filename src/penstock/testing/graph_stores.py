"""Contract of a copy of the graph outside the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from penstock import clock
from penstock.catalog.graph import StoredEntity, StoredRelation, TextGraph
from penstock.graph_stores.protocol import CopiedText, FoundMention, FoundRelation, GraphCopy

ANN = StoredEntity(1, "name", "ann lee", "lee", "Ann Lee", 2)
BOB = StoredEntity(2, "name", "bob vane", "vane", "Bob Vane", 1)
PORTO = StoredEntity(3, "place", "porto", "porto", "Porto")
MEETS = StoredRelation(1, 2, "related", 0.5)
LIVES = StoredRelation(2, 3, "related", 1.0)


def text(
    number: int, *found: StoredEntity | StoredRelation, version: int = 1, tenant: str = "acme"
) -> TextGraph:
    """A text with these entities and relations."""
    entities = [one for one in found if isinstance(one, StoredEntity)]
    return TextGraph(
        number, tenant, version, entities, [one for one in found if isinstance(one, StoredRelation)]
    )


class GraphStoreContract:
    """Promises of a copy of the graph. A subclass has the fixture ``opened``: a function that opens the store
    of the test, each time the same one."""

    @pytest.fixture
    def catalog_id(self) -> str:
        """The id of a catalog that no other test uses."""
        return clock.new_uuids(1)[0][-12:]

    @pytest.fixture
    def copy(self, opened: Callable[[], GraphCopy], catalog_id: str) -> Iterator[GraphCopy]:
        copy = opened()
        copy.prepare()
        copy.ping()
        yield copy
        copy.clear(catalog_id)

    def test_texts_are_listed_as_they_were_written(self, copy: GraphCopy, catalog_id: str) -> None:
        copy.write(catalog_id, [text(9, BOB, PORTO, LIVES), text(4, ANN, BOB, MEETS)])
        assert [
            CopiedText(4, frozenset([ANN, BOB]), frozenset([MEETS])),
            CopiedText(9, frozenset([BOB, PORTO]), frozenset([LIVES])),
        ] == list(copy.texts(catalog_id))
        assert tuple(copy.text_ids(catalog_id, after, 1) for after in (-1, 4, 9)) == ([4], [9], [])
        assert {4} == copy.present(catalog_id, {4, 5})

    def test_a_text_is_replaced_by_a_later_version_only(self, copy: GraphCopy, catalog_id: str) -> None:
        copy.write(catalog_id, [text(4, ANN, BOB, MEETS, version=2)])
        copy.write(catalog_id, [text(4, PORTO, version=1)])
        assert {ANN, BOB} == {entity for one in copy.texts(catalog_id) for entity in one.entities}
        copy.write(catalog_id, [text(4, BOB, version=3)])
        copy.write(catalog_id, [text(4, BOB, version=3)])
        assert [CopiedText(4, frozenset([BOB]), frozenset())] == list(copy.texts(catalog_id))
        assert copy.idle_entities(catalog_id) == 0
        assert copy.named(catalog_id, "acme", "ann lee", "lee") == []

    def test_entities_are_found_by_name_and_number(self, copy: GraphCopy, catalog_id: str) -> None:
        copy.write(
            catalog_id,
            [text(4, ANN, BOB, MEETS), text(5, msgspec.structs.replace(ANN, id=8), tenant="other")],
        )
        ann = FoundMention(1, "Ann Lee", "name", 4, 2)
        assert [ann] == copy.named(catalog_id, "acme", "ann lee", "no such short name")
        assert [ann] == copy.named(catalog_id, "acme", "no such name", "lee")
        assert [ann] == copy.mentions(catalog_id, "acme", [1])
        assert {ann, FoundMention(2, "Bob Vane", "name", 4, 1)} == set(copy.all_mentions(catalog_id, "acme"))

    def test_relations_are_found_from_both_ends(self, copy: GraphCopy, catalog_id: str) -> None:
        copy.write(catalog_id, [text(4, ANN, BOB, PORTO, MEETS, LIVES)])
        meets, lives = FoundRelation(1, 2, "related", 4, 0.5), FoundRelation(2, 3, "related", 4, 1.0)
        assert [meets] == copy.relations(catalog_id, "acme", [1])
        assert {meets, lives} == set(copy.relations(catalog_id, "acme", [2]))
        assert {meets, lives} == set(copy.all_relations(catalog_id, "acme"))
        assert copy.relations(catalog_id, "other", [1]) == []

    def test_removal_keeps_entities_that_other_texts_mention(self, copy: GraphCopy, catalog_id: str) -> None:
        copy.write(catalog_id, [text(4, ANN, BOB, MEETS), text(5, BOB)])
        copy.remove(catalog_id, [4, 99])
        copy.remove(catalog_id, [4])
        assert [CopiedText(5, frozenset([BOB]), frozenset())] == list(copy.texts(catalog_id))
        assert (copy.idle_entities(catalog_id), copy.named(catalog_id, "acme", "ann lee", "lee")) == (0, [])

    def test_catalogs_do_not_see_each_other(self, copy: GraphCopy, catalog_id: str) -> None:
        other = clock.new_uuids(1)[0][-12:]
        copy.write(catalog_id, [text(4, ANN)])
        assert list(copy.texts(other)) == []
        copy.write(other, [text(4, BOB)])
        copy.clear(other)
        assert [CopiedText(4, frozenset([ANN]), frozenset())] == list(copy.texts(catalog_id))
        assert list(copy.texts(other)) == []

    def test_what_was_written_is_there_for_others(
        self, opened: Callable[[], GraphCopy], copy: GraphCopy, catalog_id: str
    ) -> None:
        copy.write(catalog_id, [text(2**40, ANN)])
        other = opened()
        assert {2**40} == other.present(catalog_id, [2**40])
        assert copy.address == other.address

    def test_hostile_names_are_values(self, copy: GraphCopy, catalog_id: str) -> None:
        name = "x'}) MATCH (n) DETACH DELETE n // \\u0027 \" `$name` 東京 \U0001f600"
        hostile = StoredEntity(7, "name", name.lower(), name.lower(), name, 1)
        copy.write(catalog_id, [text(4, ANN), text(5, hostile)])
        assert [FoundMention(7, name, "name", 5, 1)] == copy.named(catalog_id, "acme", name.lower(), "")
        assert {4, 5} == copy.present(catalog_id, [4, 5])
