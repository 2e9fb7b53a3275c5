"""Fields of a call of a function, checked for their shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Required, TypedDict

from penstock.errors import InvalidRequest
from penstock.service.options import unknown_option


class CallOptions(TypedDict, total=False):
    """Options of a call; defaults come from the function, then from the settings."""

    tenant_id: str | None
    collection: str | None
    priority: int | None
    run_at: datetime | str | None
    delay: timedelta | float | None
    key: str | None
    metadata: Mapping[str, Any] | None
    max_retries: int | None
    timeout: int | None
    job_id: str | None
    after: Sequence[str] | None
    on_dependency_failure: str | None
    limit: str | None
    result_ttl: int | None
    webhook: str | None
    on_success: str | Callable[..., Any] | None
    on_failure: str | Callable[..., Any] | None


class Call(CallOptions, total=False):
    """One of many calls."""

    name: Required[str]
    payload: Any
    entity: tuple[str, str] | None


_KNOWN = Call.__required_keys__ | Call.__optional_keys__
PLAIN = frozenset({"name", "payload", "entity"})
"""Fields of calls that differ from the template of their function in payload, entity and id only."""


def refuse_misshapen(call: Call) -> None:
    if not isinstance(call, dict | Mapping):
        raise InvalidRequest(f"a call is a mapping of fields, got {type(call).__name__}")
    if not _KNOWN.issuperset(call):
        raise unknown_option("call", sorted(map(str, set(call) - _KNOWN))[0], _KNOWN)
    if "name" not in call:
        raise InvalidRequest("missing field 'name'", remedy="Name the function to call.")


def read_entity(given: tuple[str, str] | None) -> tuple[str, str] | None:
    if given is None:
        return None
    pair = tuple(given) if isinstance(given, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
        raise InvalidRequest(
            f"entity: expected a type and an id, got {str(given)[:80]!a}",
            remedy='Write entity=("worker", "w1").',
        )
    return pair[0], pair[1]
