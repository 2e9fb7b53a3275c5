"""The OpenAPI document, read as a generator of clients reads it: every schema of every route."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from penstock.http import pages, server

METHODS = {"get", "post", "put", "patch", "delete"}
WORDS = set(
    "$ref title description default example examples type format enum const anyOf oneOf allOf "
    "properties required additionalProperties items minItems maxItems uniqueItems minLength maxLength "
    "pattern minimum maximum exclusiveMinimum exclusiveMaximum contentMediaType".split()
)
"""Words of JSON Schema that generators know. ``prefixItems`` is none of them."""
TIMES = re.compile(r".*_at|.*_until|until|at|since|from")
STATES = {"status", "state", "held", "verdict", "item_type", "op", "missed", "last_status"}


@pytest.fixture(scope="module")
def application() -> server.Api:
    found = server.Api(title="Penstock", version="1")
    for routes in server.ROUTES:
        found.include_router(routes.router)
    found.include_router(pages.metrics_router)
    return found


@pytest.fixture(scope="module")
def document(application: server.Api) -> dict[str, Any]:
    return application.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert method in METHODS
            yield f"{method.upper()} {path}", operation


def schemas(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All schemas, with the place of each: its last part is the name of the field."""
    waiting = [(name, one) for name, one in document["components"]["schemas"].items()]
    for name, operation in operations(document):
        waiting += [(f"{name} {one['name']}", one["schema"]) for one in operation.get("parameters", [])]
        answers = [operation.get("requestBody", {}), *operation["responses"].values()]
        waiting += [(name, one["schema"]) for part in answers for one in part.get("content", {}).values()]
    while waiting:
        place, schema = waiting.pop()
        yield place, schema
        if not isinstance(schema, dict):
            continue
        waiting += [(f"{place} {name}", one) for name, one in schema.get("properties", {}).items()]
        waiting += [(place, one) for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, [])]
        waiting += [(place, schema[key]) for key in ("items",) if key in schema]
        if not isinstance(schema.get("additionalProperties", False), bool):
            waiting.append((place, schema["additionalProperties"]))


def test_every_operation_has_a_name_of_its_own_that_does_not_depend_on_its_path(
    application: server.Api, document: dict[str, Any]
):
    routes = [route for route in application.routes if isinstance(route, APIRoute)]
    assert [] == [route.path for route in routes if route.operation_id is None]
    names = [operation["operationId"] for _, operation in operations(document)]
    assert [] == [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name)]
    assert len(names) == len(set(names))
    assert {"jobs_list", "limits_set", "paths_index", "documents_get"} < set(names)


def test_every_schema_is_one_that_generators_understand(document: dict[str, Any]):
    known = document["components"]["schemas"]
    for place, schema in schemas(document):
        assert isinstance(schema, dict), place
        assert set() == set(schema) - WORDS, place
        if "$ref" in schema:
            assert schema["$ref"].removeprefix("#/components/schemas/") in known, place
        if schema.get("type") == "array":
            assert isinstance(schema.get("items"), dict), place


def test_times_have_their_format(document: dict[str, Any]):
    times = 0
    for place, schema in schemas(document):
        if schema.get("type") == "string" and TIMES.fullmatch(place.split()[-1]) and " " in place:
            assert "date-time" == schema.get("format"), place
            times += 1
    assert times > 30


def test_states_are_enumerated(document: dict[str, Any]):
    known = document["components"]["schemas"]
    states = 0
    for place, schema in schemas(document):
        one = known[schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema
        if " " in place and place.split()[-1] in STATES and one.get("type", "string") == "string":
            if "anyOf" in one or place == "Alive status":
                continue
            assert one.get("enum"), place
            states += 1
    assert states > 20
    assert ["pending", "running", "done", "failed", "cancelled"] == known["JobRecord"]["properties"][
        "status"
    ]["enum"]
