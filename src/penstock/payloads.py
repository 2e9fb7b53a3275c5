"""Payload models of the item types, and the paths that are not on a disk.

Unknown fields are accepted and stored; only known ones are checked. ``OPTIONS``: fields that change a result.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock.errors import InvalidPayload, InvalidRequest, RelativePath

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
ShortText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Hash: TypeAlias = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Operation: TypeAlias = Literal["index", "add"]
_LIBRARY_NAME = r"^[A-Za-z0-9@][A-Za-z0-9._+@-]{0,99}\Z"
_LIBRARY_VERSION = r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,63}\Z"
LibraryName: TypeAlias = Annotated[str, Meta(pattern=_LIBRARY_NAME)]
LibraryVersion: TypeAlias = Annotated[str, Meta(pattern=_LIBRARY_VERSION)]


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
    """Options of reading: archives to open, and OCR; None means the setting."""

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
    recursive_depth: Count | None = None  # no default: a limit would silently leave out deep files
    patterns: tuple[Text, ...] = ()
    ignore_patterns: tuple[Text, ...] = ()
    include_code: bool = False


class Crawled(Walked, frozen=True, kw_only=True):
    """Limits of a crawl, which begins at a web page: further hosts, and the number of pages."""

    OPTIONS: ClassVar[tuple[str, ...]] = (*Walked.OPTIONS, "hosts", "max_pages")
    hosts: Annotated[tuple[ShortText, ...], Meta(max_length=100)] = ()
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
    git_remote: Text | None = None
    project_type: Text | None = None
    include_code: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_absolute(self, "project_root")

    @property
    def identifier(self) -> str:
        return normal_path(self.project_root)


class LibraryPayload(Crawled, frozen=True, kw_only=True):
    """The documentation of one version of a library: from a folder or file, a URL, or as it is installed."""

    library_name: LibraryName
    library_version: LibraryVersion
    source_url: Text | None = None
    source_path: Text | None = None
    source_name: Text | None = None
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


LIBRARIES = "library://"
"""Beginning of the paths of libraries, ``library://NAME/VERSION/…``."""
OFF_DISK = (LIBRARIES, "http://", "https://")


def is_off_disk(path: str) -> bool:
    """Check whether a path is one of a library or a web page, and not of a file."""
    return path.startswith(OFF_DISK)


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
