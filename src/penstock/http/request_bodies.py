"""Bodies and filters of requests. Unknown fields and values of another type are refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from penstock.queue.job import LONGEST_TTL_S
from penstock.queue.limits import KEY_LENGTH
from penstock.queue.transitions import MOST_DEPENDENCIES

MAX_PATTERNS = 1_000
MAX_OFFSET, MAX_PAGE = 10_000, 1_000


def _storable(text: str) -> str:
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise ValueError("must not contain NUL or lone surrogates")
    return text


def _whole(value: Any) -> Any:
    """Take 16.0 for 16, as JSON schemas do."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[str, AfterValidator(_storable)]
Name = Annotated[Text, Field(min_length=1, max_length=255)]
_Moment = Annotated[Text, Field(json_schema_extra={"format": "date-time"})]
"""A time as text; the service reads it, and says what is wrong with it."""


class RequestBody(BaseModel):
    """A body without unknown fields, and with values of exactly the declared types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PlaceBody(RequestBody):
    """A body that may name a tenant, a collection and a branch."""

    tenant_id: Name | None = Field(None, description="Tenant; by default the key's, or the server's.")
    collection: Name | None = Field(None, description="Collection; by default the server's.")
    branch: Name | None = Field(None, description="Branch; by default `main`.")


_After = Annotated[
    list[Name], Field(max_length=MOST_DEPENDENCIES, description="Ids of jobs that have to end first.")
]
_Webhook = Annotated[
    Text | None, Field(max_length=2_000, description="URL that the end of the job is sent to, signed.")
]
_OnDependencyFailure = Annotated[
    Literal["cancel", "run"],
    Field(description="What to do if one of these fails or is cancelled."),
]


_LimitName = Annotated[
    Text | None, Field(max_length=KEY_LENGTH, description="Key of a limit that the job counts for.")
]


def _flag_or_name(value: Any) -> Any:
    """Take the words true and false of a query for what they say; all others are names."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


Project = Annotated[
    bool | Name | None,
    BeforeValidator(_flag_or_name),
    Field(description="False: in no project. True, or its name: of a project. By default that of the path."),
]


class IndexFields(PlaceBody):
    """Options of a request to index."""

    project: bool | None = Field(
        None,
        description="Index a project: its tenant and the checked-out branch, unless they are given. By "
        "default only in a git work tree.",
    )
    include_code: bool | None = Field(
        None, description="Index source code; by default in a git repository or beside a project file."
    )
    patterns: list[Name] = Field([], max_length=MAX_PATTERNS, description="Index only matching files.")
    exclude: list[Name] = Field([], max_length=MAX_PATTERNS, description="Leave out matching files.")
    recursive: bool = Field(True, description="Include subfolders.")
    depth: Whole | None = Field(
        None, ge=0, le=10_000, description="Maximum folder depth; of a web page, the links followed from it."
    )
    archives: bool | None = Field(None, description="Open zip and tar archives; by default the server's.")
    ocr: bool | None = Field(None, description="Recognize text in pictures; by default the server's.")
    graph: bool | None = Field(
        None, description="Extract entities and relations, or remove them; by default they stay."
    )
    checksum: bool = Field(False, description="Compare file contents, not only size and time.")
    retry_failed: bool = Field(False, description="Read unchanged files again that failed before.")
    allow_empty: bool = Field(False, description="Succeed when the folder has no file to index.")
    chunk_size: Whole | None = Field(None, ge=16, le=8192, description="Chunk size in tokens.")
    chunk_overlap: Whole | None = Field(None, ge=0, le=4096, description="Tokens repeated between chunks.")
    priority: Whole | None = Field(None, ge=0, le=10, description="0 (bulk) to 10 (a person is waiting).")
    run_at: _Moment | None = Field(None, description="Earliest start, ISO 8601 with a zone.")
    delay: float | None = Field(None, ge=0, allow_inf_nan=False, description="Seconds until the start.")
    timeout_s: Whole | None = Field(
        None, ge=1, description="Seconds from the first start to the end of the whole job, files included."
    )
    serial: bool | None = Field(
        None,
        description="Run alone among the serial jobs of its collection, in order.",
    )
    after: _After = []
    on_dependency_failure: _OnDependencyFailure = "cancel"
    limit: _LimitName = None
    webhook: _Webhook = None


class IndexBody(IndexFields):
    """A request to index a file, or everything below a folder."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"folder_path": "docs", "include_code": False}]},
    )

    folder_path: Text = Field(
        min_length=1,
        max_length=4096,
        validation_alias=AliasChoices("folder_path", "path"),
        description="Path of a file or folder below a root of the server; also called `path`.",
    )
    hosts: list[Name] = Field([], max_length=100, description="Further hosts that links may lead to.")
    max_pages: Whole | None = Field(None, ge=1, le=100_000, description="Maximum number of web pages.")

    @model_validator(mode="before")
    @classmethod
    def _one_path(cls, given: Any) -> Any:
        if isinstance(given, dict) and "folder_path" in given and "path" in given:
            raise ValueError("folder_path and path are the same field: give one of them")
        return given


class UploadFields(IndexFields):
    """Options of an upload, as texts: in the query, or as parts of a multipart body."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)

    name: Name | None = Field(None, description="Name of the file; by default that of the part `file`.")
    project: Literal[False] | None = Field(None, description="An upload is in no project.")
    force: bool = Field(False, description="Run a duplicate, and index an unchanged file again.")


class ContentBody(PlaceBody):
    """A note: a text that is indexed as a document of its own."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"content": "The mill takes in water from the river."}]},
    )

    content: Text = Field(min_length=1, description="Text of the note.")
    tag: Name | None = Field(None, description="Tag, such as `mill/gate`.")


class FilteredBody(PlaceBody):
    """A query over documents, with filters. Words between double quotes are a phrase."""

    query: Text = Field(min_length=1, max_length=10_000, description="Words, or a question.")
    project: Literal[False] | Name | None = Field(
        None, description="Project, by its name or tenant, instead of `tenant_id`."
    )
    all: bool = Field(False, description="Search all tenants of the key: every project, too.")
    mode: Literal["hybrid", "keyword", "vector"] = "hybrid"
    exact: bool = Field(False, description="Do not correct misspelt words.")
    graph: bool = Field(False, description="Follow relations, too. Entities must have been extracted.")
    path: Text | None = Field(None, description="Only paths that match this glob.")
    library: Name | None = Field(None, description="Only this library, as NAME or NAME==VERSION.")
    file_type: Name | None = Field(None, description="Only files of this type, such as `pdf`.")
    tag: Name | None = Field(None, description="Only documents with this tag, or one below it.")
    author: Name | None = None
    title: Name | None = None
    language: Name | None = None
    created_after: Name | None = Field(None, description="A date such as 2024-05-01, or a year.")
    created_before: Name | None = Field(None, description="A date such as 2024-05-01, or a year.")


class SearchBody(FilteredBody):
    """A search. Words between double quotes are a phrase."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"query": "how does the mill take in water", "limit": 5}]},
    )

    limit: Whole = Field(10, ge=1, le=1000, description="Maximum number of hits.")
    per_source: Whole | None = Field(3, ge=1, description="Maximum number of hits in one document.")
    marks: list[Annotated[Text, Field(max_length=20)]] = Field(
        ["", ""],
        min_length=2,
        max_length=2,
        description="Texts before and after each found word in a snippet.",
    )


class ContextBody(FilteredBody):
    """A question whose best passages are wanted."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"query": "how does the mill take in water", "max_tokens": 500}]},
    )

    max_tokens: Whole = Field(2_000, ge=1, le=1_000_000, description="Tokens, counted as for Llama.")


class SimilarBody(PlaceBody):
    """A document, or a place in it, to compare others with."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"path_or_id": "handbook/mill.md", "limit": 5}]},
    )

    path_or_id: Text = Field(min_length=1, max_length=4096, description="Path or id of a document.")
    project: Project = None
    line: Whole | None = Field(
        None, ge=1, le=1_000_000_000, description="Line of a chunk; a page, in a document without lines."
    )
    limit: Whole = Field(10, ge=1, le=1000, description="Maximum number of hits.")
    per_source: Whole | None = Field(3, ge=1, description="Maximum number of hits in one document.")


class CallBody(RequestBody):
    """A call of a function of the application."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"payload": {"to": "miller@example.org"}, "entity": ["mill", "m1"]}]},
    )

    payload: dict[str, Any] = Field({}, description="Argument of the function.")
    entity: list[Name] | None = Field(
        None, min_length=2, max_length=2, description="Type and id; calls of one entity never overlap."
    )
    tenant_id: Name | None = Field(None, description="Tenant; by default the key's, or the server's.")
    collection: Name | None = Field(None, description="Collection; by default the server's.")
    key: Name | None = Field(None, description="Calls with the same key are one job while it lives.")
    priority: Whole | None = Field(None, ge=0, le=10, description="0 (bulk) to 10 (a person is waiting).")
    run_at: _Moment | None = Field(None, description="Earliest start, ISO 8601 with a zone.")
    delay: float | None = Field(None, ge=0, allow_inf_nan=False, description="Seconds until the start.")
    max_retries: Whole | None = Field(None, ge=0, le=1000, description="By default the function's.")
    timeout_s: Whole | None = Field(None, ge=1, description="Maximum run time of one attempt, in seconds.")
    after: _After = []
    on_dependency_failure: _OnDependencyFailure = "cancel"
    limit: _LimitName = None
    result_ttl: Whole | None = Field(
        None,
        ge=1,
        le=LONGEST_TTL_S,
        description="Seconds for which the result is kept; by default the function's.",
    )
    webhook: _Webhook = None
    on_success: Name | None = Field(None, description="Function that is called if the job is done.")
    on_failure: Name | None = Field(None, description="Function that is called if the job is not done.")


class PauseBody(RequestBody):
    """A scope to pause or resume. The tenant `*` is everything."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"tenant_id": "acme"}, {"tenant_id": "*"}]},
    )

    tenant_id: Name | None = None
    collection: Name | None = None


class SessionBody(RequestBody):
    """A key, for which the browser gets a cookie."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_extra={"examples": [{"key": "penstock_…"}]}
    )

    key: Text = Field(min_length=1, max_length=512, description="Key made by `penstock keys create`.")


class QueryFields(BaseModel):
    """Fields of a query. Unknown ones are refused: a misspelt filter would match everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DocumentsQuery(QueryFields):
    """Filters and paging of a list of documents."""

    limit: int = Field(50, ge=1, le=MAX_PAGE)
    cursor: Text = Field("", max_length=255, description="`next` of the page before.")
    tenant_id: Name | None = None
    collection: Name | None = None
    branch: Name | None = None
    project: Annotated[Literal[False] | Name | None, BeforeValidator(_flag_or_name)] = None
    path: Text | None = Field(None, max_length=4096, description="Only paths that match this glob.")
    library: Name | None = Field(None, description="Only this library, as NAME or NAME==VERSION.")
    file_type: Name | None = None
    tag: Name | None = None
    author: Name | None = None
    title: Name | None = None
    language: Name | None = None
    created_after: Name | None = None
    created_before: Name | None = None
    ready_for: Name | None = Field(
        None, description="Only documents for which this phase can begin; of filters only the place counts."
    )


class WhyQuery(QueryFields):
    """A path, and its place."""

    path: Text = Field(min_length=1, max_length=4096, description="Path of a file or folder.")
    tenant_id: Name | None = None
    collection: Name | None = None
    branch: Name | None = None
    project: Project = None
    all: bool = Field(False, description="Look in all tenants of the key.")


class TreeQuery(QueryFields):
    """A part of the pages of a document."""

    from_page: int = Field(1, ge=1, le=10_000_000, description="First page of the tree.")
    limit: int = Field(100, ge=1, le=MAX_PAGE, description="Pages of the tree.")


class GraphQuery(QueryFields):
    """A tenant whose graph is read."""

    tenant_id: Name | None = None


class EntityQuery(GraphQuery):
    """A name of entities: whole, or the last part of it."""

    name: Text = Field(min_length=1, max_length=1000, description="Name, or the last part of it.")
    kind: Name | None = Field(None, description="Only entities of this kind, such as `person` or `class`.")
    limit: int = Field(20, ge=1, le=1000, description="Mentions of each entity.")


class NeighboursQuery(GraphQuery):
    """A name of entities, and how far to go from them."""

    name: Text = Field(min_length=1, max_length=1000, description="Name, or the last part of it.")
    kind: Name | None = Field(None, description="Only entities of this kind, such as `person` or `class`.")
    hops: int = Field(1, ge=1, le=5, description="Relations to follow.")
    limit: int = Field(50, ge=1, le=1000, description="Maximum number of entities.")


class WayQuery(GraphQuery):
    """Two names of entities."""

    source: Text = Field(min_length=1, max_length=1000, description="Name at one end.")
    target: Text = Field(min_length=1, max_length=1000, description="Name at the other end.")


Requirement = Annotated[Text, Field(min_length=1, max_length=500)]


class LibraryFields(PlaceBody):
    """Options of a request to add a library."""

    replace: bool = Field(False, description="Remove the other versions once this one is indexed.")
    patterns: list[Name] = Field([], max_length=MAX_PATTERNS, description="Index only matching files.")
    exclude: list[Name] = Field([], max_length=MAX_PATTERNS, description="Leave out matching files.")
    include_code: bool | None = Field(None, description="Index source code; by default it is.")
    depth: Whole | None = Field(
        None, ge=0, le=10_000, description="Maximum folder depth; of a URL, the links followed from it."
    )
    graph: bool | None = Field(None, description="Extract entities and relations, or remove them.")
    ocr: bool | None = Field(None, description="Recognize text in pictures, too.")
    force: bool = Field(False, description="Index unchanged files again.")
    retry_failed: bool = Field(False, description="Read unchanged files again that failed before.")
    priority: Whole | None = Field(None, ge=0, le=10, description="0 (bulk) to 10 (a person is waiting).")


class LibraryBody(LibraryFields):
    """A version of a library, and where its documentation is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"requirement": "mill==1.2", "source": "mill-1.2.tar.gz"}]},
    )

    requirement: Requirement = Field(
        description="NAME or NAME==VERSION; without a version, the one that the source states."
    )
    source: Text | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Folder, archive or wheel below a root of the server, or a URL. Without it, the "
        "installed distribution is read, which needs `allow_external`.",
    )
    hosts: list[Name] = Field([], max_length=100, description="Further hosts that links may lead to.")
    max_pages: Whole | None = Field(None, ge=1, le=100_000, description="Maximum number of web pages.")


class LibraryUploadFields(LibraryFields):
    """Options of an uploaded library, as texts: in the query, or as parts of a multipart body."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)

    requirement: Requirement | None = Field(
        None, description="NAME or NAME==VERSION; without a version, the one in the name of the file."
    )
    name: Name | None = Field(None, description="Name of the file; by default that of the part `file`.")
