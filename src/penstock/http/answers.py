"""Answers: values of the service as JSON, and their schemas in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import msgspec.inspect
from starlette.responses import Response

from penstock.http.problems import MEDIA_TYPE, Problem

REF = "#/components/schemas/{name}"
VALUES = "application/vnd.penstock.value+json"
"""Media type of the library's own values, for clients of the same version."""
_encoder = msgspec.json.Encoder()
_described: dict[str, type[msgspec.Struct]] = {Problem.__name__: Problem}


def respond(value: object, status: int = 200) -> Response:
    """The value as JSON."""
    return Response(_encoder.encode(value), status, media_type="application/json")


def respond_values(value: object, status: int = 200) -> Response:
    """The library's own value as JSON, for clients of the library."""
    return Response(_encoder.encode(value), status, media_type=VALUES)


def described(
    kind: type[msgspec.Struct],
    status: int = 200,
    *,
    refused: tuple[int, ...] = (),
    example: object = None,
    also: dict[int, str] | None = None,
    value: bool = False,
) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route: the answer, and the statuses of refusals.

    ``value``: clients may have the library's own value instead.
    """
    _described[kind.__name__] = kind
    content: dict[str, Any] = {"schema": {"$ref": REF.format(name=kind.__name__)}}
    if example is not None:
        content["example"] = example
    answer: dict[str, Any] = {"description": _summary(kind), "content": {"application/json": content}}
    if value:
        # Not described further: the fields are those of the library, and change with it.
        answer["content"][VALUES] = {"schema": {}}
    found: dict[int | str, dict[str, Any]] = {status: answer}
    for other, meaning in (also or {}).items():
        found[other] = {**answer, "description": meaning}
    return found | {other: problem(other) for other in (*EVERYWHERE, *refused)}


EVERYWHERE = (400, 401, 403, 408, 413, 421, 422, 429, 431, 503)
"""Statuses with which every route may refuse: by the guard, the checks of fields, or the store."""
MEANINGS = {
    400: "The body is not JSON, or the path lies outside the roots.",
    401: "No key, or an unknown one.",
    403: "The scope or the tenants of the key, or the origin, do not allow this.",
    404: "Not found, or of another tenant.",
    405: "The route has other methods.",
    408: "The request did not arrive in time.",
    409: "The status of the job does not allow this.",
    413: "The body is too large.",
    421: "The Host header names another server.",
    422: "A field is unknown or has a wrong value; `errors` names it.",
    429: "The queue is full, or the key sent too many requests; see Retry-After.",
    431: "The headers are too large.",
    503: "The store cannot be used now.",
}


def problem(status: int) -> dict[str, Any]:
    schema = {"$ref": REF.format(name=Problem.__name__)}
    return {"description": MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema}}}


def schemas() -> dict[str, Any]:
    """The schemas of all described answers, by name."""
    _, components = msgspec.json.schema_components(list(_described.values()), ref_template=REF)
    for kind in _structs(msgspec.inspect.multi_type_info(list(_described.values()))):
        properties = components[kind.cls.__name__]["properties"]
        for field in kind.fields:
            _add_formats(properties[field.encode_name], field.type)
    return components


def _structs(types: Iterable[msgspec.inspect.Type]) -> list[msgspec.inspect.StructType]:
    """The described structs, and those in their fields."""
    found: dict[type, msgspec.inspect.StructType] = {}
    waiting = list(types)
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls not in found:
                found[kind.cls] = kind
                waiting += [field.type for field in kind.fields]
        else:
            waiting += _parts(kind)
    return list(found.values())


def _parts(kind: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    if isinstance(kind, msgspec.inspect.UnionType):
        return list(kind.types)
    if isinstance(kind, msgspec.inspect.DictType):
        return [kind.value_type]
    if isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
        return [kind.item_type]
    return []


def _add_formats(schema: dict[str, Any], kind: msgspec.inspect.Type) -> None:
    """Say which texts are times. All are in UTC, which msgspec cannot know from the type ``datetime``."""
    if isinstance(kind, msgspec.inspect.DateTimeType):
        schema["format"] = "date-time"
    elif isinstance(kind, msgspec.inspect.UnionType):
        texts = [one for one in schema["anyOf"] if one.get("type") == "string"]
        for part in kind.types:
            if isinstance(part, msgspec.inspect.DateTimeType) and len(texts) == 1:
                _add_formats(texts[0], part)
    elif isinstance(kind, msgspec.inspect.DictType):
        _add_formats(schema.get("additionalProperties", {}), kind.value_type)
    elif parts := _parts(kind):
        _add_formats(schema["items"], parts[0])


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def portable(document: Any) -> Any:
    """The document in words that generators of clients understand.

    Bounds that pydantic writes under its own names get those of JSON Schema. A tuple is a list of a fixed
    length: the form with ``prefixItems`` ends with ``"items": false``, at which generators stop.
    """
    if isinstance(document, list):
        return [portable(part) for part in document]
    if not isinstance(document, dict):
        return document
    found = {name: portable(part) for name, part in document.items()}
    if isinstance(found.get("type"), str):
        found = {_BOUNDS.get(name, name): part for name, part in found.items()}
    if isinstance(found.get("prefixItems"), list):
        kinds = [
            one for number, one in enumerate(found["prefixItems"]) if one not in found["prefixItems"][:number]
        ]
        found["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        del found["prefixItems"]
    return found


def _summary(kind: type[msgspec.Struct]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())
