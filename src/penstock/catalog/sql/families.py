"""Families: sources of several branches that share texts, keyword entries, vectors and entities.

A source is in a family of its own, or in that of the related source that it was first stored with. A family
has at most one source in each branch of a collection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.catalog.rules.identity import ChunkIds
from penstock.catalog.sql.read_records import FAMILY_MEMBER, FamilyMember, SourceRow
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import NewGeneration, Place


class Families:
    """The families of the sources of one call of ``store``."""

    def __init__(self, rows: Statements) -> None:
        self._rows = rows
        self._of_new: dict[tuple[Place, str], int] = {}
        self._members: dict[int, list[FamilyMember]] = {}

    def look_up(
        self, generations: Iterable[NewGeneration], found: Mapping[tuple[Place, str], SourceRow]
    ) -> None:
        """Find the families, and lock families with texts of other sources until the end of the transaction:
        a sweep of these texts then sees the generations that share them."""
        new = [each for each in generations if (each.place, each.path) not in found]
        self._join([each for each in new if each.related_id is not None])
        own = {source.family_key: source.source_id for source in found.values()}
        joined = set(self._of_new.values())
        members = self._read(joined | own.keys())
        shared = {each.family_key for each in members if own.get(each.family_key) != each.source_id}
        if not shared:
            return
        self._rows.hold("families", listed(sorted(shared)))
        for member in self._read(shared):
            self._members.setdefault(member.family_key, []).append(member)

    def of_new(self, new: NewGeneration, source_key: int) -> int:
        """The family of a new source: the family of a related source, or a new one."""
        return self._of_new.get((new.place, new.path), source_key)

    def others(self, family_key: int, source_id: str) -> dict[int, str]:
        """Published generations of the other sources of a family, with the ids of these sources."""
        members = self._members.get(family_key, ())
        return {each.published_id: each.source_id for each in members if each.source_id != source_id}

    def _join(self, related: list[NewGeneration]) -> None:
        if not related:
            return
        families: dict[tuple[str, str], int] = {}
        for tenant_id in {new.place.tenant_id for new in related}:
            ids = [new.related_id for new in related if new.place.tenant_id == tenant_id]
            for source_id, family_key in self._rows.all("related_families", tenant_id, listed(ids)):
                families[tenant_id, source_id] = family_key
        places = self._rows.all("family_places", listed(set(families.values())))
        taken = {(family_key, Place(*place)) for family_key, *place in places}
        for new in related:
            family = families.get((new.place.tenant_id, new.related_id or ""))
            if family is not None and (family, new.place) not in taken:
                taken.add((family, new.place))
                self._of_new[new.place, new.path] = family

    def _read(self, families: Iterable[int]) -> list[FamilyMember]:
        keys = listed(families)
        return FAMILY_MEMBER.decode_all(self._rows.all("family_members", keys)) if keys != "[]" else []


def translated_ids(
    tenant_id: str, source_id: str, shared: Mapping[int, str], chunks: Iterable[tuple[int, str]]
) -> dict[str, str]:
    """The ids that chunks of other sources, by document and text hash, would have in a source.

    Ids are made of the source, the text, and the number of equal texts before. So a text of the family is
    always the same one of several equal texts, and no generation has it twice.
    """
    times = Counter(
        (document_id, hash_of_text) for document_id, hash_of_text in chunks if document_id in shared
    )
    theirs = {document_id: ChunkIds(tenant_id, other) for document_id, other in shared.items()}
    own = ChunkIds(tenant_id, source_id)
    ids: dict[str, list[str]] = {}
    translated = {}
    for (document_id, hash_of_text), count in times.items():
        ours = ids.setdefault(hash_of_text, [])
        ours += [own.next(hash_of_text) for _ in range(count - len(ours))]
        for number in range(count):
            translated[theirs[document_id].next(hash_of_text)] = ours[number]
    return translated
