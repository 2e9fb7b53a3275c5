"""Answers of routes: values as JSON, and errors as problem documents (RFC 9457) with their statuses."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import msgspec.inspect
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from penstock import errors
from penstock.errors import InvalidRequest, PenstockError, RouteNotFound

MEDIA_TYPE = "application/problem+json"
log = logging.getLogger("penstock.http")

_STATUSES: tuple[tuple[type[PenstockError], int], ...] = (
    (errors.KeyRequired, 401),
    (errors.NotAllowed, 403),
    (errors.HostRefused, 421),
    (errors.RequestTooSlow, 408),
    (errors.RateLimited, 429),
    (errors.QueueFull, 429),
    (errors.TooManyAtOnce, 429),
    (errors.ServerStopping, 503),
    (errors.ServerBusy, 503),
    (errors.UploadQuotaReached, 507),
    (errors.PathOutside, 400),
    (errors.WebOff, 403),
    (errors.UnknownLibrary, 404),
    (errors.RequestHeadTooLarge, 431),
    (errors.RequestTooLarge, 413),
    (errors.PayloadTooLarge, 413),
    (errors.PathNotFound, 404),
    (errors.UnknownDocument, 404),
    (errors.UnknownProject, 404),
    (errors.NotInGraph, 404),
    (errors.UnknownFunction, 404),
    (errors.PageImageMissing, 404),
    (errors.JobNotFound, 404),
    (errors.ScheduleNotFound, 404),
    (errors.LimitNotFound, 404),
    (errors.CollectionNotFound, 404),
    (errors.RouteNotFound, 404),
    (errors.AmbiguousId, 409),
    (errors.Conflict, 409),
    (errors.InvalidRequest, 422),
    # A fault of Penstock, which the same request meets again.
    (errors.StatementRefused, 500),
    (errors.StoreError, 503),
)
"""The status of each kind of error; the first match counts. Any other one is a 500."""
_RETRY_STORE_S = 5
_PRIVATE = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Headers of every answer except the files of the dashboard: nobody on the way keeps texts of documents."""


class FieldError(msgspec.Struct, frozen=True):
    """A refused field, as a path such as ``patterns.0``."""

    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document. ``code`` is stable, ``remedy`` the next step; ``errors`` names refused fields.

    ``pending`` is the number of jobs in a full queue, ``twin`` a live job that stands in the way.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    remedy: str
    errors: list[FieldError] = []
    pending: int | msgspec.UnsetType = msgspec.UNSET
    twin: str | msgspec.UnsetType = msgspec.UNSET
    matched: int | msgspec.UnsetType = msgspec.UNSET
    """Number of jobs that match now, where another one was expected."""


def _status_of(error: PenstockError) -> int:
    return next((status for known, status in _STATUSES if isinstance(error, known)), 500)


def problem_response(
    error: PenstockError,
    *,
    status: int | None = None,
    fields: Sequence[FieldError] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """The answer to a request that ended in this error."""
    if isinstance(error, errors.StoreError) and os.strerror(errno.EMFILE) in error.message:
        # The remedy is the same whichever file could not be opened.
        error = _too_many_files()
    status = status or _status_of(error)
    body = Problem(
        type=f"urn:penstock:error:{error.code}",
        title=(type(error).__doc__ or "").strip().partition("\n")[0],
        status=status,
        detail=error.message,
        code=error.code,
        remedy=error.remedy,
        errors=list(fields),
        pending=getattr(error, "pending", msgspec.UNSET),
        twin=getattr(error, "twin", msgspec.UNSET),
        matched=getattr(error, "matched", msgspec.UNSET),
    )
    return Response(
        msgspec.json.encode(body),
        status,
        {**_PRIVATE, **(headers or {}), **_headers(error, status)},
        MEDIA_TYPE,
    )


def _headers(error: PenstockError, status: int) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    retry_after = getattr(error, "retry_after", _RETRY_STORE_S if status == 503 else None)
    return {} if retry_after is None else {"Retry-After": str(retry_after)}


def add_handlers(api: FastAPI) -> None:
    """Answer every error of a route with a problem document."""
    api.add_exception_handler(PenstockError, _penstock_error)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _http_error)
    api.add_exception_handler(OSError, _system_error)
    api.add_exception_handler(Exception, _unexpected)


async def _penstock_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return logged_problem(error)


def logged_problem(error: PenstockError) -> Response:
    """The answer to an error, which is logged if the server is at fault."""
    if _status_of(error) >= 500:
        log.error("%s: %s", error.code, error.message)
    return problem_response(error)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        broken = InvalidRequest("the body is not valid JSON", remedy="Send a JSON object.")
        return problem_response(broken, status=400, fields=[FieldError("body", _said(found[0]))])
    fields = [FieldError(_place(one["loc"]), _said(one)) for one in found]
    refused = InvalidRequest("; ".join(f"{one.field}: {one.message}" for one in fields[:3]))
    return problem_response(refused, fields=fields)


def _place(location: Sequence[int | str]) -> str:
    """The path of a field, without the leading part of the request such as ``body``."""
    parts = [str(part)[:80] for part in location]
    return ".".join(parts[1:] or parts)


def _said(error: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "json_invalid":
        return f"not JSON at character {error['loc'][-1]}"
    return str(error["msg"])


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code in (404, 405):
        said = f"{request.method} {request.url.path[:200]} is not a route"
        return problem_response(RouteNotFound(said), status=error.status_code, headers=headers)
    refused = InvalidRequest(error.detail or HTTPStatus(error.status_code).phrase)
    return problem_response(refused, status=error.status_code, headers=headers)


async def _system_error(_request: Request, error: Exception) -> Response:
    if getattr(error, "errno", None) not in (errno.EMFILE, errno.ENFILE):
        raise error
    return logged_problem(_too_many_files())


def _too_many_files() -> PenstockError:
    return errors.TooManyFiles(
        "the server has too many open files and connections",
        remedy="Try again later, or raise its limit on open files, for example with: ulimit -n 4096",
    )


async def _unexpected(_request: Request, error: Exception) -> Response:
    """Answer an unexpected error. The text is only logged, since messages may hold contents of files."""
    log.error("a request failed", exc_info=error)
    return problem_response(PenstockError("the server failed to answer; its log has the cause"))


_REF = "#/components/schemas/{name}"
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
    content: dict[str, Any] = {"schema": {"$ref": _REF.format(name=kind.__name__)}}
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
_MEANINGS = {
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
    schema = {"$ref": _REF.format(name=Problem.__name__)}
    return {"description": _MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema}}}


def schemas() -> dict[str, Any]:
    """The schemas of all described answers, by name."""
    _, components = msgspec.json.schema_components(list(_described.values()), ref_template=_REF)
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
