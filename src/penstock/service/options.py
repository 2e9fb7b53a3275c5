"""Options that the library, the clients and the adapters share, and the refusal of unknown names.

Python checks the names of ``**options`` nowhere: a misspelt filter would match everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict, cast

from penstock.errors import InvalidRequest, UnknownOption
from penstock.queue.payloads import Operation

Mode: TypeAlias = Literal["hybrid", "keyword", "vector"]
ProjectChoice: TypeAlias = bool | str | None
"""A project by its name, tenant or folder; True: the one of the path or current folder, False: none, None:
by the rule of ``service.projects``."""


class Where(TypedDict, total=False):
    """Tenant, collection and branch of a document; by default those of the settings."""

    tenant_id: str | None
    collection: str | None
    branch: str | None


class PathPlace(Where, total=False):
    """The place of a document that is named by its path; by default that of the project around it."""

    project: ProjectChoice


class WhyOptions(PathPlace, total=False):
    """Options of ``why``. ``all``: look for the path in every tenant that one may read."""

    all: bool


class DocumentFilters(Where, total=False):
    """Filters of documents. ``path`` is a glob; ``tag`` includes tags below it.

    ``library`` is the name of one, or ``NAME==VERSION``; it cannot be combined with ``path``.
    ``author`` and ``title`` are parts of the text, in any case; ``language`` ``en`` includes ``en-US``.
    ``created_after`` and ``created_before`` are dates: on this day or later, and before this day. Compared is
    what the documents state about themselves. A document that does not state it is left out.
    """

    path: str | None
    library: str | None
    file_type: str | None
    tag: str | None
    author: str | None
    title: str | None
    language: str | None
    created_after: str | None
    created_before: str | None


class ListFilters(DocumentFilters, total=False):
    """Filters of a list of documents, which is of one tenant or ``project``."""

    project: ProjectChoice


class FilteredScope(DocumentFilters, total=False):
    """Filters, with the part of the index: a ``project`` or, with ``all``, every tenant one may read."""

    project: ProjectChoice
    all: bool


class QueryOptions(FilteredScope, total=False):
    """Options of every query. ``exact``: misspelt words are not corrected. ``graph``: chunks that relations
    lead to are found as well."""

    mode: Mode
    exact: bool
    graph: bool


class SearchRequest(QueryOptions, total=False):
    """Options of a search: ``limit`` hits, at most ``per_source`` (None: any number) per document."""

    limit: int
    per_source: int | None
    marks: tuple[str, str]


class ContextOptions(QueryOptions, total=False):
    """Options of a context: at most ``max_tokens`` tokens."""

    max_tokens: int


class SimilarOptions(PathPlace, total=False):
    """Options of a search by a document: ``limit`` hits, at most ``per_source`` per document."""

    limit: int
    per_source: int | None


class LibraryOptions(Where, total=False):
    """Options of ``Libraries.add``; all have defaults."""

    priority: int | None
    include: Sequence[str]
    exclude: Sequence[str]
    include_code: bool | None
    depth: int | None
    hosts: Sequence[str]
    max_pages: int | None
    chunk_size: int | None
    chunk_overlap: int | None
    graph: bool | None
    ocr: bool | None
    force: bool
    retry_failed: bool
    run_at: datetime | str | None
    delay: float | None
    timeout_s: int | None


class IndexOptions(LibraryOptions, total=False):
    """Options of ``Documents.index``: those of a library, and others; all have defaults."""

    archives: bool | None
    recursive: bool
    gate: Literal["page", "document"] | None
    checksum: bool
    allow_empty: bool
    project: bool | None
    operation: Operation
    serial: bool | None
    after: Sequence[str] | None
    on_dependency_failure: str | None
    limit: str | None
    webhook: str | None


class ClientIndexOptions(IndexOptions, total=False):
    """Options of ``Client.index``: those of the library, and ``allow_external``."""

    allow_external: bool


class ClientLibraryOptions(LibraryOptions, total=False):
    """Options of ``ClientLibraries.add``: those of the library, and ``allow_external``."""

    allow_external: bool


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule. By default its name is that of the function or folder."""

    name: str | None
    zone: str | None
    missed: str | None
    replace: bool
    tenant_id: str | None


class NoteFilters(TypedDict, total=False):
    """Filters of notes; ``after`` is the last id of the previous page."""

    tenant_id: str | None
    collection: str | None
    tag: str | None
    after: str
    limit: int


class NoteChanges(TypedDict, total=False):
    """Options of a new text of a note: its tags stay, unless given a ``tag`` or ``drop_tags``."""

    tag: str | None
    drop_tags: bool
    tenant_id: str | None


class MovedWhere(TypedDict, total=False):
    """The place of a document that was moved."""

    tenant_id: str | None
    collection: str | None
    project: ProjectChoice


class EntityOptions(TypedDict, total=False):
    """Options of a search for entities: of one ``kind``, each with so many ``mentions``."""

    kind: str | None
    tenant_id: str | None
    mentions: int


class NeighbourOptions(TypedDict, total=False):
    """Options of a walk through the graph: over so many ``hops``, to at most ``limit`` entities."""

    hops: int
    kind: str | None
    limit: int
    tenant_id: str | None


class FailedJobs(TypedDict, total=False):
    """Filters of failed jobs that are retried together."""

    tenant_id: str | None
    collection: str | None
    item_type: str | None


class TimingChanges(TypedDict, total=False):
    """New values of a schedule; what is not given stays."""

    timing: str | None
    zone: str | None
    missed: str | None


def path_place(options: Mapping[str, Any]) -> PathPlace:
    """The place of a document, among the options of a call."""
    names = PathPlace.__optional_keys__
    return cast("PathPlace", {name: value for name, value in options.items() if name in names})


def texts(name: str, value: object) -> list[str]:
    """The value of an option that is a list of texts. A text alone would be taken for its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidRequest(f"{name}: expected a list of texts, got {type(value).__name__}")
    return list(value)


def refuse_unknown(call: str, given: Iterable[str], shape: Any) -> None:
    """Raise ``UnknownOption`` for the first name that the ``TypedDict`` class does not have."""
    for name in given:
        if name not in shape.__optional_keys__ and name not in shape.__required_keys__:
            raise unknown_option(call, name, shape.__optional_keys__ | shape.__required_keys__)


def unknown_option(call: str, name: object, known: Iterable[str]) -> UnknownOption:
    """The refusal of an option, with the known name that is most like it."""
    import difflib

    ordered = sorted(known)
    word = str(name)[:80]
    close = difflib.get_close_matches(word, ordered, n=1)
    # A part of a name is nearer to what was meant than letters in the same order.
    part = [each for each in ordered if word in each.split("_")]
    meant = next(iter([*part, *close]), None)
    hint = f"; did you mean {meant!r}?" if meant else ""
    return UnknownOption(
        f"{call} has no option {word!r}{hint}", remedy=f"The options are {', '.join(ordered)}."
    )
