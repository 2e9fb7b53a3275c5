"""Payload models of the item types, and the encoding of payloads for storage.

Unknown fields are accepted and stored; only known ones are checked. ``OPTIONS``: fields that change a result.
"""

from __future__ import annotations

import functools
import math
import posixpath
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock.errors import InvalidPayload, InvalidRequest, InvalidText, PayloadTooLarge, RelativePath

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
ShortText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Container: TypeAlias = dict[Any, Any] | list[Any] | tuple[Any, ...]
Hash: TypeAlias = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Operation: TypeAlias = Literal["index", "add"]


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
    # Cached: msgspec evaluates the annotations at each call, fifty times the cost of the key itself.
    return {one.name: one.default for one in msgspec.structs.fields(model) if one.name in model.OPTIONS}


SMALLEST_CHUNK, USUAL_CHUNK, LARGEST_CHUNK = 16, 512, 8_192
"""In tokens. The words of a larger chunk may exceed PostgreSQL's limit of 1 MB for an index entry."""


class Chunked(Payload, frozen=True, kw_only=True):
    """Chunk size and overlap, and whether entities are extracted; None means the pipeline's defaults."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("chunk_size", "chunk_overlap", "graph")
    chunk_size: Annotated[int, Meta(ge=SMALLEST_CHUNK, le=LARGEST_CHUNK)] | None = None
    chunk_overlap: Count | None = None
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
    main_tag: Text | None = None
    full_tag: Annotated[str, Meta(pattern=r"^[^/]+(/[^/]+)*\Z")] | None = None
    tags: Annotated[tuple[Text, ...], Meta(max_length=32)] = ()
    document_id: Text | None = None
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
    """Which files are opened, and whether text in pictures is recognized; None: as the setting says."""

    OPTIONS: ClassVar[tuple[str, ...]] = (*Chunked.OPTIONS, "archives", "ocr", "operation")
    archives: bool = False
    ocr: bool | None = None
    operation: Operation = "index"


class FilePayload(Reading, frozen=True, kw_only=True, omit_defaults=True):
    """One file, read by the worker when the job runs."""

    file_path: str
    file_type: Text | None = None
    file_hash: Hash | None = None
    size_bytes: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_absolute(self, "file_path")

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
    recursive_depth: Count | None = None  # no default: a limit would silently leave out deep files
    patterns: tuple[Text, ...] = ()
    ignore_patterns: tuple[Text, ...] = ()
    include_code: bool = False


class FolderPayload(Walked, frozen=True, kw_only=True):
    """A directory, expanded into one job per file."""

    folder_path: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_absolute(self, "folder_path")

    @property
    def identifier(self) -> str:
        return normal_path(self.folder_path)


class ProjectPayload(Walked, frozen=True, kw_only=True):
    """A source tree, walked by git's rules. Unlike for a folder, code is included by default."""

    project_root: str
    git_remote: Text | None = None
    project_type: Text | None = None
    include_code: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_absolute(self, "project_root")

    @property
    def identifier(self) -> str:
        return normal_path(self.project_root)


class LibraryPayload(Chunked, frozen=True, kw_only=True):
    """The documentation of one version of a library."""

    library_name: Text
    library_version: Text
    source_url: Text | None = None

    @property
    def identifier(self) -> str:
        return f"{self.library_name}:{self.library_version}"


class DeleteTenantPayload(Payload, frozen=True, kw_only=True):
    """Everything of one tenant."""

    tenant_id_to_delete: ShortText
    reason: Literal["project_removed", "user_request"] = "user_request"

    @property
    def identifier(self) -> str:
        return self.tenant_id_to_delete


class DeleteDocumentPayload(Payload, frozen=True, kw_only=True):
    """One document, by id or by absolute path."""

    document_id: Text
    point_ids: tuple[Text, ...] = ()

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

    function_name: ShortText
    payload: dict[str, Any] | None = None
    # No colon in the type: in the lock key a colon ends the type.
    entity_type: Annotated[str, Meta(pattern=r"^[^:]{1,255}\Z")] | None = None
    entity_id: ShortText | None = None

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


def normal_path(path: str) -> str:
    """The path without doubled or trailing slashes, ``.`` and ``..``; the file system is not read."""
    # POSIX allows a special meaning for exactly two leading slashes; no supported system uses it.
    return posixpath.normpath("/" + path.lstrip("/")) if path.startswith("/") else posixpath.normpath(path)


def _require_absolute(payload: Payload, field: str) -> None:
    if not (path := getattr(payload, field)).startswith("/"):
        raise RelativePath(f"field '{field}': expected an absolute path, got {path[:200]!r}")


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


_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder()


def encode_payload(payload: Mapping[str, Any], *, max_bytes: int | None) -> str:
    """Encode a payload as compact JSON; refuse values which JSON would change, and too large ones."""
    if not isinstance(payload, dict | Mapping):
        raise InvalidPayload(f"payload: expected an object, got {type(payload).__name__}")
    return encode_strictly("payload", dict(payload), max_bytes=max_bytes)


def encode_strictly(what: str, value: object, *, max_bytes: int | None) -> str:
    """Encode a value as compact JSON that decodes to the same value; ``what`` names it in errors."""
    try:
        encoded = _encode(what, value)
        if max_bytes is not None and len(encoded) > max_bytes:
            raise PayloadTooLarge(f"{what} is {len(encoded):,} bytes, the limit is {max_bytes:,}")
        # msgspec writes NaN as null, bytes as base64, the key 1 as "1": none of them decodes to the same.
        # To name the place takes a walk in Python, so only suspicious values are walked.
        if b"\\u0000" in encoded or _decoder.decode(encoded) != value:
            _refuse_first_flaw(what, value)
    except RecursionError:
        raise InvalidPayload(f"{what}: nested too deeply, or contains itself") from None
    return encoded.decode()


def _encode(what: str, value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        _refuse_first_flaw(what, value)
        raise InvalidPayload(f"{what}: {error}") from None


def _refuse_first_flaw(what: str, value: object) -> None:
    """Walk the value and raise for the first flaw. Tuples pass: they become lists."""
    places: list[tuple[str, object]] = [(what, value)]
    walked: set[int] = set()
    for place, value in places:  # the list grows, so that the outermost flaw is found first
        if not isinstance(value, dict | list | tuple):
            _refuse_flawed_leaf(place, value)
        elif id(value) not in walked:  # a payload may contain itself
            walked.add(id(value))
            places.extend(_parts(place, value))


def _parts(place: str, value: Container) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        yield from ((f"{place}[{index}]", part) for index, part in enumerate(value))
        return
    for key, part in value.items():
        _refuse_flawed_key(place, key)
        yield f"{place}.{key}"[:200], part


def _refuse_flawed_key(place: str, key: object) -> None:
    if not isinstance(key, str):
        raise InvalidPayload(f"{place}: keys must be strings, got {key!r}")
    _refuse_flawed_text(f"a key of {place}", key)


def _refuse_flawed_leaf(place: str, value: object) -> None:
    if isinstance(value, str):
        _refuse_flawed_text(place, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidPayload(f"{place}: {value} is not a JSON number")
    elif value is not None and not isinstance(value, bool | int):
        raise InvalidPayload(f"{place}: {type(value).__name__} is not a JSON value")


def _refuse_flawed_text(place: str, text: str) -> None:
    if "\0" in text:
        raise InvalidText(f"{place} holds a NUL character")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidText(f"{place} holds a lone surrogate")
