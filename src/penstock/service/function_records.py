"""Records of an application's functions, for programs."""

from __future__ import annotations

import msgspec

from penstock.handlers.functions import Functions


class FunctionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the application. ``requires``: fields of its payload. None: the setting counts."""

    name: str
    requires: tuple[str, ...]
    max_retries: int | None
    timeout_s: int | None
    priority: int | None = None
    limit: str | None = None
    queue_limit: int | None = None
    result_ttl_s: int | None = None


class FunctionRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Functions by name, and the types of entities that calls may have; none: any type."""

    functions: list[FunctionRecord]
    entity_types: list[str]


def function_records(functions: Functions) -> FunctionRecords:
    """List the registered functions by name, and the types of entities."""
    found = [functions.get(name) for name in functions.names()]
    return FunctionRecords(
        functions=[
            FunctionRecord(
                name=one.name,
                requires=one.requires,
                max_retries=one.max_retries,
                timeout_s=one.timeout_s,
                priority=one.priority,
                limit=one.limit,
                queue_limit=one.queue_limit,
                result_ttl_s=one.result_ttl_s,
            )
            for one in found
        ],
        entity_types=functions.entity_types(),
    )
