"""Item types with their operations, names, idempotency keys, lock keys and priorities; delivered files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from penstock.errors import (
    InvalidName,
    InvalidPriority,
    InvalidText,
    UnknownItemType,
    UnknownOperation,
    UnsupportedOperation,
)
from penstock.lazy_pattern import lazy_pattern
from penstock.payloads import MODELS, DeleteTenantPayload, FunctionPayload, Payload, read_payload

MATRIX: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "content": ("ingest", "update", "delete"),
        "file": ("ingest", "update", "delete"),
        "folder": ("ingest", "delete", "scan"),
        "project": ("ingest", "delete", "scan"),
        "library": ("ingest", "update", "delete"),
        "delete_tenant": ("delete",),
        "delete_document": ("delete",),
        "rename": ("update",),
        "function": ("run",),
    }
)
"""Operations of each item type; every other pair is refused."""

ITEM_TYPES: tuple[str, ...] = tuple(MATRIX)
OPERATIONS: tuple[str, ...] = ("ingest", "update", "delete", "scan", "run")
TypeName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(ITEM_TYPES)})]
OperationName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(OPERATIONS)})]
"""Item type and operation in answers, whose schemas list them."""


NOTES = "note:"
"""Prefix of the paths of notes. No path of a file begins like this."""


def note_path(text: str) -> str:
    """The path of the note with this text: equal texts are one note."""
    return NOTES + hashlib.sha256(text.encode()).hexdigest()[:32]


def validate_pair(item_type: str, op: str) -> None:
    """Refuse an unknown item type, operation or pair of both."""
    if item_type not in ITEM_TYPES:
        raise UnknownItemType(_unknown("item type", item_type, ITEM_TYPES))
    if op not in OPERATIONS:
        raise UnknownOperation(_unknown("operation", op, OPERATIONS))
    if op not in MATRIX[item_type]:
        raise UnsupportedOperation(
            f"item type {item_type!r} has no operation {op!r}; it has {', '.join(MATRIX[item_type])}"
        )


def _unknown(noun: str, given: object, known: Iterable[str]) -> str:
    word = str(given)[:80]
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown {noun} {word!r}{hint}; known are {', '.join(known)}"


def parse_payload(item_type: str, op: str, payload: Mapping[str, Any]) -> Payload:
    """Check the pair and the payload's known fields. The stored payload is the caller's, unchanged."""
    validate_pair(item_type, op)
    parsed = read_payload(MODELS[item_type], op, payload, label=f"{item_type} {op} payload")
    if isinstance(parsed, DeleteTenantPayload):
        validate_name("tenant_id", parsed.tenant_id_to_delete)
    return parsed


def idempotency_key(item_type: str, collection: str, payload: Payload) -> str:
    """``{item_type}:{collection}:{16 hex}``, the hex being the SHA-256 of the request's identity.

    The identity is ``payload.identifier`` alone while all options have their defaults. Other options are
    appended as a line feed and canonical JSON (keys sorted, no spaces, UTF-8), since they change the result:
    ``/docs``, ``\\n``, ``{"include_code":true,"patterns":["*.md"]}``. The operation is not included: an
    ingest and a delete of one file meet in one row. Functions have only the key of their caller.
    """
    if isinstance(payload, FunctionPayload):
        raise TypeError("a function job has no key of its own; use function_key or a unique one")
    return f"{item_type}:{collection}:{_digest(_identity(payload))}"


def function_key(collection: str, key: str) -> str:
    """The idempotency key of a function job for the caller's ``key``."""
    return f"function:{collection}:{_digest(validate_name('key', key))}"


def own_key(collection: str, queue_id: str) -> str:
    """The idempotency key of a function job without a caller's key: the last digits of the new id.

    Such a job never meets another one, so nothing is hashed.
    """
    return f"function:{collection}:{queue_id[-16:]}"


def lock_key(payload: Payload, *, tenant_id: str, branch: str, collection: str) -> str | None:
    """The lock of a job: its document, or its function's entity; None without either."""
    if isinstance(payload, FunctionPayload):
        return _entity_lock(tenant_id, payload.entity_type, payload.entity_id)
    target = payload.lock_target
    if target is None:
        return None
    # Names hold no line feed, so different documents never give the same text.
    return "doc:" + _digest("\n".join((tenant_id, branch, collection, target)))


def _entity_lock(tenant_id: str, entity_type: str | None, entity_id: str | None) -> str | None:
    """The lock of an entity, as the specification writes it for the default tenant. Others have their own."""
    if entity_type is None:
        return None
    if tenant_id == DEFAULT_TENANT:
        return f"entity:{entity_type}:{entity_id}"
    return "entity:" + _digest("\n".join((tenant_id, entity_type, str(entity_id))))


PATH_TYPES = frozenset(("file", "folder", "project", "library"))


DEFAULT_TENANT = "default"


def serial_lock(tenant_id: str, collection: str) -> str:
    """The lock of jobs for paths that run one at a time in a collection, in order."""
    return "serial:" + _digest(f"{tenant_id}\n{collection}")


def _identity(payload: Payload) -> str:
    options = payload.changed_options()
    if not options:
        return payload.identifier
    try:
        return payload.identifier + "\n" + msgspec.json.encode(options, order="sorted").decode()
    except UnicodeEncodeError:
        raise InvalidText(f"one of the options {', '.join(options)} holds a lone surrogate") from None


def _digest(text: str) -> str:
    try:
        return hashlib.sha256(text.encode()).hexdigest()[:16]
    except UnicodeEncodeError:
        raise InvalidText("the text that identifies this job holds a lone surrogate") from None


Source: TypeAlias = Literal["mcp", "cli", "http", "redis", "library", "watcher", "active_project", "bulk"]

ASKED_AT = "asked_at"
"""Key in a job's metadata: time of the newest request for the job, as ISO 8601."""
RETRY_FAILED = "retry_failed"
"""Key in a job's metadata: files that failed before are read again, although they are unchanged."""


def asked_at(metadata: str) -> datetime | None:
    """The time of the newest request in a job's metadata."""
    text = msgspec.json.decode(metadata).get(ASKED_AT)
    return datetime.fromisoformat(text) if isinstance(text, str) else None


NOTE = 8
FUNCTION = 5
SCAN = 3
LIBRARY_DOCS = 1

PRIORITY_BY_DOOR: Mapping[str, int] = MappingProxyType(
    {
        "mcp": 10,  # a person waits for the result
        "cli": 9,
        "active_project": 7,  # a change seen by the watcher in a project in use
        "http": 5,
        "redis": 5,
        "library": 5,
        "watcher": 5,
        "bulk": 0,
    }
)


def default_priority(door: Source, item_type: str, op: str) -> int:
    """The default priority of a job. Its type counts more than its door."""
    if door == "bulk":
        return PRIORITY_BY_DOOR[door]
    if op == "scan":
        return SCAN
    if item_type == "content":
        return NOTE
    if item_type == "function":
        return FUNCTION
    # Removing a library is quick and was requested; only building one can wait.
    if item_type == "library" and op != "delete":
        return LIBRARY_DOCS
    return PRIORITY_BY_DOOR[door]


def child_priority(parent_priority: int) -> int:
    """One below the parent's priority, so that a big folder does not outrank the next request."""
    return max(parent_priority - 1, 0)


def validate_priority(value: int) -> int:
    """Refuse a priority other than a whole number from 0 to 10."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10:
        raise InvalidPriority(f"priority must be a whole number from 0 to 10, got {str(value)[:80]!r}")
    return value


NameKind: TypeAlias = Literal["tenant_id", "collection", "branch", "worker_id", "job_id", "key"]

EVERY = "*"
"""All tenants, or all collections, in the scope of a pause."""

_JOB_ID = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def validate_name(field: NameKind, value: str) -> str:
    """Refuse an empty, too long, unprintable or blank-padded name."""
    if not isinstance(value, str):
        raise InvalidName(f"{field} must be text, got {type(value).__name__}")
    if not 1 <= len(value) <= 255:
        raise InvalidName(f"{field} must have 1 to 255 characters, got {len(value)}")
    if not value.isprintable() or value != value.strip():
        raise InvalidName(f"{field} must be printable, without blanks at its ends, got {value[:80]!a}")
    if value == EVERY and field in ("tenant_id", "collection"):
        raise InvalidName(
            f"{field}: '*' stands for all of them, so none can have this name", remedy="Use another name."
        )
    if field == "collection" and ":" in value:
        # The idempotency key has the collection between colons.
        raise InvalidName(f"collection must not contain ':', got {value[:80]!r}", remedy="Use '-' instead.")
    if field == "job_id" and not _JOB_ID.fullmatch(value):
        raise InvalidName(
            f"job_id must be a letter or digit and up to 127 more of these or . _ : -, got {value[:80]!r}",
            remedy="Use an id such as rag-docs-1700000000-0a1b2c3d, or leave it out.",
        )
    return value


ARRIVAL = "arrival"
"""Key in a job's metadata of the facts about a file which another program put into an inbox."""


class DeliveredFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that is read at ``read_from`` and known by the job's path, where it is moved later.

    ``sent_at`` is the time of the message. ``source_type`` is the required type of the content, None: any.
    ``tags`` and ``about`` go to the document, in addition to those of its former version or (``keep`` false)
    instead of them.
    """

    read_from: str
    source_type: str | None = None
    tags: tuple[str, ...] = ()
    about: dict[str, Any] = {}
    keep: bool = True
    sent_at: datetime | None = None


def delivered_file_of(metadata: Mapping[str, Any]) -> DeliveredFile | None:
    found = metadata.get(ARRIVAL)
    return None if found is None else msgspec.convert(found, DeliveredFile)


ORIGIN = "origin"
"""Key in a job's metadata of the place where the content of a library's file or a web page is read."""


class ContentOrigin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a document that is not a file of its path: a web page, or a file of a library."""

    read_from: str
    """File with the content on this machine; it may lie inside an archive."""
    name: str
    """Name that decides the type."""
    url: str = ""
    """Address of a web page. It is fetched again where the file is missing."""
    source: str = ""
    """Folder, archive or start page that the document was found in."""


def origin_of(metadata: Mapping[str, Any]) -> ContentOrigin | None:
    """The origin in a job's metadata."""
    found = metadata.get(ORIGIN)
    return None if found is None else msgspec.convert(found, ContentOrigin)


def tag_fields(tags: Sequence[str]) -> dict[str, Any]:
    """Fields of a note's payload for its tags. The first is the specification's main and full tag."""
    if not tags:
        return {}
    more = {"tags": list(tags[1:])} if len(tags) > 1 else {}
    return {"main_tag": tags[0].partition("/")[0], "full_tag": tags[0]} | more
