"""Answers of a language model as entities and relations: names missing from the text are left out.

The text may tell the model what to answer. All it can reach is another set of its own words: names have to
stand in the text, kinds are from a list without those of code and documents, and sizes are limited.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.catalog.entities import MAX_NAME, Entity, Extraction, Relation, name_key
from penstock.pipeline.graph.names import DATE, NAME, ORGANISATION, PERSON, PLACE, QUANTITY
from penstock.pipeline.graph.prose import RELATED, TERM

KINDS = (PERSON, ORGANISATION, PLACE, "event", "product", TERM, DATE, QUANTITY, NAME)
MAX_ENTITIES = 200
MAX_RELATIONS = 400
MAX_RELATION_NAME = 40
MIN_HALVED = 200
"""Characters of a text that is worth to be halved."""
_FENCE = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
_NOT_A_WORD = re.compile(r"[^\w]+")


class _FoundEntity(msgspec.Struct):
    name: str
    kind: str = NAME


class _FoundRelation(msgspec.Struct):
    source: str
    target: str
    kind: str = RELATED


class Answer(msgspec.Struct):
    """Answer of the model, as required by ``SCHEMA``."""

    entities: list[_FoundEntity]
    relations: list[_FoundRelation] = []


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "entities": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "kind": {"type": "string", "enum": list(KINDS)}},
                "required": ["name", "kind"],
                "additionalProperties": False,
            },
        },
        "relations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("source", "kind", "target")},
                "required": ["source", "kind", "target"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["entities", "relations"],
    "additionalProperties": False,
}


def decoded(content: str) -> Answer:
    """Decode the answer, with or without a fence around it. Raises msgspec.DecodeError or RecursionError."""
    fenced = _FENCE.fullmatch(content.strip())
    return msgspec.json.decode(fenced[1] if fenced else content, type=Answer)


def halves(text: str) -> tuple[str, ...]:
    """The two halves of a text, parted between two paragraphs, sentences or words; none of a short text."""
    middle, reach = len(text) // 2, len(text) // 4
    if len(text) < MIN_HALVED:
        return ()
    for end in ("\n\n", ". ", "\n", " "):
        nearby = text.rfind(end, middle - reach, middle), text.find(end, middle, middle + reach)
        found = [at + len(end) for at in nearby if at >= 0]
        if found:
            cut = min(found, key=lambda at: abs(at - middle))
            return text[:cut], text[cut:]
    return text[:middle], text[middle:]


def extraction(answer: Answer, text: str) -> Extraction:
    """The part of an answer consistent with this text."""
    searched = _folded(text)
    entities: dict[Entity, int] = {}
    by_name: dict[str, Entity] = {}
    for found in answer.entities:
        name = _name(found.name)
        times = _occurrences(name, searched)
        if times and _folded(name) not in by_name and len(entities) < MAX_ENTITIES:
            kind = found.kind.strip().lower()
            entity = Entity(name, kind if kind in KINDS else NAME)
            by_name[_folded(name)] = entity
            entities[entity] = times
    return Extraction(entities, _relations(answer.relations, by_name))


def _relations(found: Sequence[_FoundRelation], by_name: dict[str, Entity]) -> list[Relation]:
    """The relations between entities of the answer, each once."""
    relations: dict[tuple[Entity, str, Entity], None] = {}
    for one in found:
        source, target = by_name.get(_folded(_name(one.source))), by_name.get(_folded(_name(one.target)))
        if source is None or target is None or name_key(source) == name_key(target):
            continue
        relations[source, _relation_name(one.kind), target] = None
        if len(relations) == MAX_RELATIONS:
            break
    return [Relation(*parts) for parts in relations]


def _name(name: str) -> str:
    """A name in one line, without control characters; empty if too long."""
    shown = " ".join("".join(char if char.isprintable() else " " for char in name).split())
    return shown if len(shown) <= MAX_NAME else ""


def _relation_name(kind: str) -> str:
    words = _NOT_A_WORD.sub("_", kind[: 10 * MAX_RELATION_NAME].casefold()).strip("_")
    return words[:MAX_RELATION_NAME].rstrip("_") or RELATED


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _occurrences(name: str, searched: str) -> int:
    """Count the occurrences of a name in a text, as whole words."""
    folded = _folded(name)
    if not any(char.isalnum() for char in folded):
        return 0
    count, start = 0, searched.find(folded)
    while start >= 0:
        end = start + len(folded)
        count += _is_end(searched, start - 1, start) and _is_end(searched, end, end - 1)
        start = searched.find(folded, end)
    return count


def _is_end(text: str, outside: int, inside: int) -> bool:
    """Tell whether a word ends between two characters. Scripts without spaces have no such ends."""
    if not 0 <= outside < len(text):
        return True
    pair = text[outside], text[inside]
    return not all(char.isalnum() for char in pair) or any(char > "\u2e7f" for char in pair)
