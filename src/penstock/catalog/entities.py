"""Entities found in chunks, and relations between them: the results of extractors.

An entity belongs to a tenant and is identified by kind and normalised name.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence

from penstock.named_tuple import NamedTuple

MODULE, CLASS, FUNCTION, METHOD = "module", "class", "function", "method"
CODE_KINDS = frozenset((MODULE, CLASS, FUNCTION, METHOD))
DOCUMENT, SECTION = "document", "section"
MAX_NAME = 300
"""Characters of a name. Of longer names the end is a checksum, so that no two become one."""


class Entity(NamedTuple):
    """An entity as written. Entities of a kind with equal ``name_key`` are the same."""

    name: str
    kind: str


class Relation(NamedTuple):
    """A relation between two entities of a chunk. ``weight``: greater is surer."""

    source: Entity
    kind: str
    target: Entity
    weight: float = 1.0


class Extraction(NamedTuple):
    """The entities of a chunk with the number of their occurrences, and the relations between them.

    The ends of a relation are among the entities; a target that stands elsewhere has no occurrences.
    """

    entities: Mapping[Entity, int]
    relations: Sequence[Relation]


def name_key(entity: Entity) -> str:
    """The name that identifies an entity in its kind. Only names in code and paths keep their case."""
    name = shortened(written(entity.name))
    return name if entity.kind in CODE_KINDS or entity.kind in (DOCUMENT, SECTION) else name.casefold()


def short_key(entity: Entity) -> str:
    """The name a person would ask for: the last part of a dotted name or a path, or the heading."""
    name = written(entity.name)
    if entity.kind == DOCUMENT or (entity.kind == MODULE and "/" in name):
        name = name.rpartition("/")[2]
    elif entity.kind in CODE_KINDS:
        name = name.rpartition(".")[2]
    elif entity.kind == SECTION:
        name = name.partition("#")[2]
    return shortened(name).casefold()


def written(name: str) -> str:
    """A name with single spaces and in one Unicode normal form: people cannot see the difference."""
    return " ".join((name if name.isascii() else unicodedata.normalize("NFC", name)).split())


def shortened(name: str) -> str:
    """A name, or the beginning of a long one with a checksum."""
    if len(name) <= MAX_NAME:
        return name
    checksum = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: MAX_NAME - len(checksum) - 1]}~{checksum}"
