"""Payloads and identities of jobs: the models of the item types, their keys, locks, names and priorities.

Unknown fields of a payload are accepted and stored; only known ones are checked. ``OPTIONS``: fields that
change a result.
"""

from __future__ import annotations

import functools
import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock.errors import (
    InvalidName,
    InvalidPayload,
    InvalidPriority,
    InvalidRequest,
    InvalidText,
    RelativePath,
    UnknownItemType,
    UnknownOperation,
    UnsupportedOperation,
)

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_ShortText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
_Count: TypeAlias = Annotated[int, Meta(ge=0)]
_Hash: TypeAlias = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Operation: TypeAlias = Literal["index", "add"]
_LIBRARY_NAME = r"^[A-Za-z0-9@][A-Za-z0-9._+@-]{0,99}\Z"
_LIBRARY_VERSION = r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,63}\Z"
_LibraryName: TypeAlias = Annotated[str, Meta(pattern=_LIBRARY_NAME)]
_LibraryVersion: TypeAlias = Annotated[str, Meta(pattern=_LIBRARY_VERSION)]


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """A checked payload."""

    OPTIONS: ClassVar[tuple[str, ...]] = ()

    @property
    def identifier(self) -> str:
        """The identity of a request; hashed into the idempotency key."""
        raise NotImplementedError

    @property
    def lock_target(self) -> str | None:
        """The document to lock while a job works on it."""
        return None

    def check(self, op: str) -> None:
        """Refuse a payload which lacks fields for this operation."""

    def changed_options(self) -> dict[str, object]:
        """Options with a value other than the default."""
        defaults = _option_defaults(type(self))
        return {name: value for name in self.OPTIONS if (value := getattr(self, name)) != defaults[name]}


@functools.cache
def _option_defaults(model: type[Payload]) -> dict[str, object]:
    # Options all have defaults. msgspec.structs.fields would evaluate the annotations.
    fields, defaults = model.__struct_fields__, model.__struct_defaults__
    found = dict(zip(fields[-len(defaults) :], defaults, strict=True))
    return {name: found[name] for name in model.OPTIONS}


SMALLEST_CHUNK, USUAL_CHUNK, LARGEST_CHUNK = 16, 512, 8_192
"""In tokens. The words of a larger chunk may exceed PostgreSQL's limit of 1 MB for an index entry."""


class Chunked(Payload, frozen=True, kw_only=True):
    """Chunk size and overlap, and whether entities are extracted; None means the pipeline's defaults."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("chunk_size", "chunk_overlap", "graph")
    chunk_size: Annotated[int, Meta(ge=SMALLEST_CHUNK, le=LARGEST_CHUNK)] | None = None
    chunk_overlap: _Count | None = None
    graph: bool | None = None
    gate: Literal["page", "document"] = "page"  # no option: it changes the order of the work, not its result

    def __post_init__(self) -> None:
        most = (self.chunk_size or USUAL_CHUNK) // 2
        if self.chunk_overlap is not None and self.chunk_overlap > most:
            raise InvalidPayload(f"field 'chunk_overlap': expected at most half of chunk_size, {most}")


class ContentPayload(Chunked, frozen=True, kw_only=True):
    """A note, by text or by the id of an earlier note. An update without a tag keeps the note's tags."""

    content: str | None = None
    # The specification's three, and `api` for programs. The door is in the job's submitted_by, not here.
    source_type: Literal["scratchbook", "mcp", "clipboard", "api"] = "scratchbook"
    main_tag: _Text | None = None
    full_tag: Annotated[str, Meta(pattern=r"^[^/]+(/[^/]+)*\Z")] | None = None
    tags: Annotated[tuple[_Text, ...], Meta(max_length=32)] = ()
    document_id: _Text | None = None
    drop_tags: bool = False

    @property
    def identifier(self) -> str:
        return self.document_id or self.content or ""

    @property
    def lock_target(self) -> str:
        return self.identifier

    def check(self, op: str) -> None:
        if op == "delete" and not self.identifier:
            raise InvalidPayload("a delete needs field 'document_id', or the identical text in 'content'")
        if op != "delete" and not (self.content or "").strip():
            raise InvalidPayload("missing required field 'content', or it is blank")
        if op == "update" and self.document_id is None:
            raise InvalidPayload("missing required field 'document_id': which note to replace")
        if op == "ingest" and self.document_id is not None:
            raise InvalidPayload("field 'document_id': a new note has none; use op 'update' to replace one")
        if self.drop_tags and op != "update":
            raise InvalidPayload("field 'drop_tags': only an update removes tags")


class Reading(Chunked, frozen=True, kw_only=True):
    """Options of reading: archives to open, and OCR; None means the setting."""

    OPTIONS: ClassVar[tuple[str, ...]] = (*Chunked.OPTIONS, "archives", "ocr", "operation")
    archives: bool = False
    ocr: bool | None = None
    operation: Operation = "index"


class FilePayload(Reading, frozen=True, kw_only=True, omit_defaults=True):
    """One file, read by the worker when the job runs."""

    file_path: str
    file_type: _Text | None = None
    file_hash: _Hash | None = None
    size_bytes: _Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_absolute(self, "file_path", off_disk=True)

    @property
    def identifier(self) -> str:
        return normal_path(self.file_path)

    @property
    def lock_target(self) -> str:
        return self.identifier


class Walked(Reading, frozen=True, kw_only=True):
    """Filters for the files below a root. Depth None: all levels. Operation ``add`` removes no document."""

    _FILTERS: ClassVar = ("recursive", "recursive_depth", "patterns", "ignore_patterns", "include_code")
    OPTIONS: ClassVar[tuple[str, ...]] = (*Reading.OPTIONS, *_FILTERS)
    recursive: bool = True
    recursive_depth: _Count | None = None  # no default: a limit would silently leave out deep files
    patterns: tuple[_Text, ...] = ()
    ignore_patterns: tuple[_Text, ...] = ()
    include_code: bool = False


class Crawled(Walked, frozen=True, kw_only=True):
    """Limits of a crawl, which begins at a web page: further hosts, and the number of pages."""

    OPTIONS: ClassVar[tuple[str, ...]] = (*Walked.OPTIONS, "hosts", "max_pages")
    hosts: Annotated[tuple[_ShortText, ...], Meta(max_length=100)] = ()
    max_pages: Annotated[int, Meta(ge=1, le=100_000)] | None = None


class FolderPayload(Crawled, frozen=True, kw_only=True):
    """A directory or a web page, expanded into one job per file or page.

    A delete of ``/`` with ``whole_collection`` removes everything in the collection: also notes, libraries
    and web pages, and in every branch.
    """

    OPTIONS: ClassVar[tuple[str, ...]] = (*Crawled.OPTIONS, "whole_collection")
    folder_path: str
    whole_collection: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_absolute(self, "folder_path", off_disk=True)

    def check(self, op: str) -> None:
        if self.whole_collection and (op != "delete" or self.identifier != "/"):
            raise InvalidPayload("field 'whole_collection': only a delete of folder '/' has it")

    @property
    def identifier(self) -> str:
        return normal_path(self.folder_path)


class ProjectPayload(Walked, frozen=True, kw_only=True):
    """A source tree, walked by git's rules. Unlike for a folder, code is included by default."""

    project_root: str
    git_remote: _Text | None = None
    project_type: _Text | None = None
    include_code: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_absolute(self, "project_root")

    @property
    def identifier(self) -> str:
        return normal_path(self.project_root)


class LibraryPayload(Crawled, frozen=True, kw_only=True):
    """The documentation of one version of a library: from a folder or file, a URL, or as it is installed."""

    library_name: _LibraryName
    library_version: _LibraryVersion
    source_url: _Text | None = None
    source_path: _Text | None = None
    source_name: _Text | None = None
    """Name of an uploaded file, shown instead of its path."""
    include_code: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_password("source_url", self.source_url or "")
        if self.source_path is not None:
            _require_absolute(self, "source_path")
            if self.source_url is not None:
                raise InvalidPayload("fields 'source_url' and 'source_path': expected one of them at most")

    @property
    def identifier(self) -> str:
        return f"{self.library_name}:{self.library_version}"

    @property
    def root(self) -> str:
        """Path of the documents of this version."""
        return library_path(self.library_name, self.library_version)


class DeleteTenantPayload(Payload, frozen=True, kw_only=True):
    """Everything of one tenant."""

    tenant_id_to_delete: _ShortText
    reason: Literal["project_removed", "user_request"] = "user_request"

    @property
    def identifier(self) -> str:
        return self.tenant_id_to_delete


class DeleteDocumentPayload(Payload, frozen=True, kw_only=True):
    """One document, by id or by absolute path."""

    document_id: _Text
    point_ids: tuple[_Text, ...] = ()

    @property
    def identifier(self) -> str:
        return normal_path(self.document_id) if posixpath.isabs(self.document_id) else self.document_id

    @property
    def lock_target(self) -> str:
        return self.identifier


class RenamePayload(Payload, frozen=True, kw_only=True):
    """A file or folder has a new path."""

    old_path: str
    new_path: str
    is_folder: bool = False

    def __post_init__(self) -> None:
        _require_absolute(self, "old_path")
        _require_absolute(self, "new_path")
        if normal_path(self.old_path) == normal_path(self.new_path):
            raise InvalidPayload("field 'new_path': expected another path than old_path")

    @property
    def identifier(self) -> str:
        return f"{normal_path(self.old_path)}:{normal_path(self.new_path)}"

    @property
    def lock_target(self) -> str:
        return normal_path(self.new_path)


class FunctionPayload(Payload, frozen=True, kw_only=True):
    """A registered function with arguments and entity."""

    function_name: _ShortText
    payload: dict[str, Any] | None = None
    # No colon in the type: in the lock key a colon ends the type.
    entity_type: Annotated[str, Meta(pattern=r"^[^:]{1,255}\Z")] | None = None
    entity_id: _ShortText | None = None

    def __post_init__(self) -> None:
        if (self.entity_type is None) != (self.entity_id is None):
            raise InvalidPayload("fields 'entity_type' and 'entity_id': expected both or neither")


MODELS: Mapping[str, type[Payload]] = MappingProxyType(
    {
        "content": ContentPayload,
        "file": FilePayload,
        "folder": FolderPayload,
        "project": ProjectPayload,
        "library": LibraryPayload,
        "delete_tenant": DeleteTenantPayload,
        "delete_document": DeleteDocumentPayload,
        "rename": RenamePayload,
        "function": FunctionPayload,
    }
)


LIBRARIES = "library://"
"""Beginning of the paths of libraries, ``library://NAME/VERSION/…``."""
_OFF_DISK = (LIBRARIES, "http://", "https://")


def is_off_disk(path: str) -> bool:
    """Check whether a path is one of a library or a web page, and not of a file."""
    return path.startswith(_OFF_DISK)


def normal_library_name(name: str) -> str:
    """The name in lower case, with ``-`` for ``_`` and ``.``: package indexes take these for the same."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirement(text: str) -> tuple[str, str | None]:
    """Name and version of ``NAME`` or ``NAME==VERSION``; raises ``InvalidPayload`` for anything else."""
    name, sign, version = text.strip().partition("==")
    name, version = name.strip(), version.strip()
    if not re.fullmatch(_LIBRARY_NAME, name) or (sign and not re.fullmatch(_LIBRARY_VERSION, version)):
        raise InvalidPayload(
            f"{text[:80]!r} is not the name of a library", remedy="Write NAME or NAME==VERSION."
        )
    return name, version or None


def library_path(name: str, version: str = "") -> str:
    """Path of the documents of a library, or of one of its versions."""
    return f"{LIBRARIES}{normal_library_name(name)}" + (f"/{version}" if version else "")


def normal_path(path: str) -> str:
    """The path without doubled or trailing slashes, ``.`` and ``..``; the file system is not read.

    Paths of libraries and web pages stay as they are.
    """
    if is_off_disk(path):
        return path
    # POSIX allows a special meaning for exactly two leading slashes; no supported system uses it.
    return posixpath.normpath("/" + path.lstrip("/")) if path.startswith("/") else posixpath.normpath(path)


def _require_absolute(payload: Payload, field: str, *, off_disk: bool = False) -> None:
    path = getattr(payload, field)
    if not path.startswith("/") and not (off_disk and is_off_disk(path)):
        raise RelativePath(f"field '{field}': expected an absolute path, got {path[:200]!r}")
    _refuse_password(field, path)


def _refuse_password(field: str, url: str) -> None:
    """Refuse a URL with a user or a password, which would be stored and shown with the job."""
    if is_off_disk(url) and "@" in re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]:
        raise InvalidPayload(f"field '{field}': expected a URL without user and password")


def read_payload(model: type[Payload], op: str, payload: Mapping[str, Any], *, label: str) -> Payload:
    """Check a payload against a model; ``label`` is the start of error messages."""
    if not isinstance(payload, dict | Mapping):  # a dict first: the test for a mapping is slower
        raise InvalidPayload(f"{label}: expected an object, got {type(payload).__name__}")
    try:
        checked = msgspec.convert(payload, model)
        checked.check(op)
    except msgspec.ValidationError as error:
        # msgspec wraps errors of __post_init__; the wrapped error is the exact one.
        refusal = error.__cause__ if isinstance(error.__cause__, InvalidRequest) else None
        refused = type(refusal) if refusal else InvalidPayload
        raise refused(f"{label}: {refusal or _readable(str(error), model)}") from None
    except InvalidPayload as refusal:
        raise InvalidPayload(f"{label}: {refusal}") from None
    return checked


# Replaces the regular expressions in messages of msgspec.
_EXPECTED = {
    "file_hash": "'sha256:' and 64 lower-case hex digits",
    "full_tag": "tags joined by '/', such as a/b/c",
    "entity_type": "1 to 255 characters without ':'",
    "library_name": "up to 100 letters, digits and . _ + @ -, the first a letter, a digit or @",
    "library_version": "up to 64 letters, digits and . _ + ! -, the first a letter or a digit",
}


def _readable(complaint: str, model: type[Payload]) -> str:
    """msgspec's complaint with the field first, such as "field 'size_bytes': expected int >= 0"."""
    what, _, where = complaint.partition(" - at ")
    match = re.search(r"\$\.([^`]+)", where)
    if where.startswith("`key`"):
        return f"field '{match[1]}': keys must be strings" if match else "keys must be strings"
    if match is None:
        return what.removeprefix("Object ").replace("`", "'")
    field = match[1]
    if what.startswith("Invalid enum value"):
        allowed = next(entry.type.__args__ for entry in msgspec.structs.fields(model) if entry.name == field)
        what = f"expected one of {', '.join(allowed)}"
    elif "matching regex" in what:
        what = f"expected {_EXPECTED[field]}"
    return f"field '{field}': {what.replace('`', '').replace('Expected', 'expected')}"


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
    if tenant_id == _DEFAULT_TENANT:
        return f"entity:{entity_type}:{entity_id}"
    return "entity:" + _digest("\n".join((tenant_id, entity_type, str(entity_id))))


PATH_TYPES = frozenset(("file", "folder", "project", "library"))


_DEFAULT_TENANT = "default"


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


_NOTE = 8
_FUNCTION = 5
SCAN = 3
_LIBRARY_DOCS = 1

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
        return _NOTE
    if item_type == "function":
        return _FUNCTION
    # Removing a library is quick and was requested; only building one can wait.
    if item_type == "library" and op != "delete":
        return _LIBRARY_DOCS
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

_JOB_ID = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"


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
    if field == "job_id" and not re.fullmatch(_JOB_ID, value):
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
