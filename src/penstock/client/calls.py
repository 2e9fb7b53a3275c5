"""Calls: the request of each client method, the type of the answer, and the files that requests send.

The types of answers are imported by the call that needs them, so that one command does not load all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from penstock.errors import InvalidRequest, JobNotFound, PathNotFound
from penstock.service.functions import CallOptions
from penstock.service.requests import (
    ClientIndexOptions,
    ContextOptions,
    ListFilters,
    SearchRequest,
    SimilarOptions,
    Where,
    WhyOptions,
    refuse_unknown,
    texts,
)

if TYPE_CHECKING:
    from penstock.catalog.values import Source
    from penstock.queue.job import Job, Scope
    from penstock.service.documents import ProjectRecord
    from penstock.service.hits import Hit, SearchResult
    from penstock.service.job_views import DocumentView, JobListing, JobOutcome, JobView
    from penstock.service.jobs import JobFilter
    from penstock.service.pages import ShownPage
    from penstock.service.passages import PromptContext
    from penstock.service.requests import CancelAnswer, Receipt, Stats
    from penstock.service.server import Readiness, ServerStatus
    from penstock.service.uploads import UploadRecord
    from penstock.service.why import Reason


T = TypeVar("T")

JSON = "application/json"
VALUES = "application/vnd.penstock.value+json"
"""Media type of the library's own values."""
_PROBLEMS = "application/problem+json"
EVENTS = "text/event-stream"
_JOB_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class FileBody(msgspec.Struct, frozen=True):
    """The body of a request, read from a file in pieces."""

    file: BinaryIO
    size: int

    def pieces(self, size: int) -> Iterator[bytes]:
        left = self.size
        while left:
            piece = self.file.read(min(size, left))
            if not piece:
                raise InvalidRequest("the file became shorter while it was sent", remedy="Send it again.")
            left -= len(piece)
            yield piece


class ApiCall(msgspec.Struct, Generic[T], frozen=True):
    """A request. ``repeatable``: sending twice has the same effect as once.

    ``kind``: the type of the answer, None for text; ``pick`` makes the value of the decoded answer.
    ``patience``: the timeout that counts.
    """

    method: str
    target: str
    kind: Any
    pick: Callable[[Any], T]
    body: bytes | FileBody | None = None
    content_type: str = JSON
    accept: str = f"{VALUES}, {JSON}, {_PROBLEMS}"
    repeatable: bool = True
    patience: Literal["index", "query"] = "query"
    headers: tuple[tuple[str, str], ...] = ()


def _same(value: Any) -> Any:
    return value


def _target(path: str, query: Mapping[str, Any] | None = None) -> str:
    """The path of a request with its query; values None are left out, lists are repeated."""
    pairs: list[tuple[str, str]] = []
    for name, value in (query or {}).items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is not None:
                pairs.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
    return path + (f"?{urlencode(pairs)}" if pairs else "")


def _id(text: str) -> str:
    """An id as a part of a path."""
    if not isinstance(text, str) or not text or text in (".", ".."):
        raise InvalidRequest(f"expected an id, got {str(text)[:80]!a}")
    return quote(text, safe="")


def _job(text: str) -> str:
    """The path of a job."""
    if not isinstance(text, str) or not _JOB_ID.fullmatch(text) or text in (".", ".."):
        raise JobNotFound(f"no job has the id {str(text)[:80]!a}")
    return f"/index/jobs/{text}"


def _json(fields: Mapping[str, Any]) -> bytes:
    """A JSON object without the fields that are None."""
    given = {name: _plain(value) for name, value in fields.items() if value is not None}
    try:
        return msgspec.json.encode(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"the request cannot be sent as JSON: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple | set | frozenset) else value


def _get(path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> ApiCall[T]:
    return ApiCall("GET", _target(path, query), kind, _same)


def _post(path: str, kind: type[T], fields: Mapping[str, Any], *, changes: bool) -> ApiCall[T]:
    return ApiCall("POST", path, kind, _same, _json(fields), repeatable=not changes)


# Index.


def index(path: str | os.PathLike[str], options: ClientIndexOptions) -> ApiCall[Receipt]:
    """Queue a file or folder of the server."""
    refuse_unknown("index", options, ClientIndexOptions)
    given: dict[str, Any] = dict(options)
    if given.pop("gate", None) is not None:
        raise InvalidRequest("gate: not an option of a server", remedy="Set it where the server runs.")
    return _submission(f"/index{_operation(given)}", given | {"folder_path": os.fspath(path)})


def _operation(given: dict[str, Any]) -> str:
    operation = given.pop("operation", None) or "index"
    if operation not in ("index", "add"):
        raise InvalidRequest(f"operation: expected index or add, got {str(operation)[:80]!a}")
    return "/add" if operation == "add" else ""


def _submission(path: str, given: dict[str, Any]) -> ApiCall[Receipt]:
    from penstock.service.requests import Receipt

    query = {name: given.pop(name, None) or None for name in ("force", "allow_external")}
    if "include" in given:
        given["patterns"] = texts("include", given.pop("include") or [])
    if "exclude" in given:
        given["exclude"] = texts("exclude", given["exclude"] or [])
    if given.get("hosts"):
        given["hosts"] = texts("hosts", given["hosts"])
    body = _json(given)
    return ApiCall("POST", _target(path, query), Receipt, _same, body, repeatable=False, patience="index")


def note(text: str, *, tag: str | None = None, **where: Unpack[Where]) -> ApiCall[Receipt]:
    """Queue a note."""
    refuse_unknown("note", where, Where)
    return _submission("/content", {"content": text, "tag": tag, **where})


def upload(file: BinaryIO, name: str, options: ClientIndexOptions) -> ApiCall[UploadRecord]:
    """Send a file, and queue it."""
    from penstock.service.uploads import UploadRecord

    given: dict[str, Any] = dict(options)
    if "include" in given or "exclude" in given:
        raise InvalidRequest("include and exclude: a single file has no others to choose from")
    query = {"name": name} | {key: _plain(value) for key, value in given.items()}
    return sent_file(_target("/files", query), file, UploadRecord)


def sent_file(target: str, file: BinaryIO, answer: type[T]) -> ApiCall[T]:
    """Send a file as the body of a request."""
    size = os.fstat(file.fileno()).st_size - file.tell()
    return ApiCall(
        "POST",
        target,
        answer,
        _same,
        FileBody(file, size),
        "application/octet-stream",
        repeatable=False,
        patience="index",
    )


class opened:  # noqa: N801 - used like a function
    """A file opened for reading; a file that is open already stays so."""

    def __init__(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        self._own: BinaryIO | None = None
        self._file = file

    def __enter__(self) -> BinaryIO:
        if isinstance(self._file, str | os.PathLike):
            try:
                self._own = Path(self._file).open("rb")
            except OSError as error:
                raise PathNotFound(f"{os.fspath(self._file)}: {error.strerror}") from None
            return self._own
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.close()


def file_name(file: BinaryIO) -> str:
    """The last part of the path of an open file."""
    name = getattr(file, "name", None)
    if not isinstance(name, str):
        raise InvalidRequest("the file has no name", remedy="Give a name, with the suffix of its type.")
    return Path(name).name


def function(
    name: str,
    payload: Mapping[str, Any] | None,
    entity: tuple[str, str] | None,
    options: CallOptions,
) -> ApiCall[Receipt]:
    """Queue a call of a function."""
    refuse_unknown("call", options, CallOptions)
    given: dict[str, Any] = dict(options)
    if any(given.pop(one, None) is not None for one in ("metadata", "job_id", "limit")):
        raise InvalidRequest("metadata, job_id and limit: not options of a call through a server")
    given["timeout_s"] = given.pop("timeout", None)
    fields = given | {"payload": dict(payload or {}), "entity": entity}
    return _submission(f"/functions/{_id(name)}", fields)


def remove(source_id: str) -> ApiCall[Receipt]:
    """Queue the removal of a document."""
    from penstock.service.requests import Receipt

    target = f"/documents/{_id(source_id)}"
    return ApiCall("DELETE", target, Receipt, _same, repeatable=False, patience="index")


# Jobs.


def job(id_or_prefix: str) -> ApiCall[JobView]:
    """Find a job with all details."""
    from penstock.service.job_views import JobView

    return _get(_job(id_or_prefix), JobView)


def jobs(filters: JobFilter) -> ApiCall[JobListing]:
    """Find jobs."""
    from penstock.service import jobs

    refuse_unknown("jobs", filters, jobs.JobFilter)
    from penstock.service.job_views import JobListing

    given: dict[str, Any] = dict(filters)
    if given.pop("op", None) or given.pop("branch", None):
        raise InvalidRequest("op and branch: not filters of a server")
    newest, by_priority = given.pop("newest_first", True), given.pop("by_priority", False)
    given["sort"] = "priority" if by_priority else None if newest else "oldest"
    status = given.get("status")
    given["status"] = [status] if isinstance(status, str) else sorted(status) if status else None
    given["cursor"] = given.pop("after", None)
    given["children"] = None if given.pop("top_level", None) else True
    return _get("/index/jobs", JobListing, given)


def outcome(id_or_prefix: str) -> ApiCall[JobOutcome]:
    """Read what the catalog knows about a job."""
    from penstock.service.job_views import JobOutcome

    return _get(f"{_job(id_or_prefix)}/outcome", JobOutcome)


def cancel(id_or_prefix: str) -> ApiCall[CancelAnswer]:
    """Cancel a job."""
    from penstock.service.requests import CancelAnswer

    # Not repeated: a job that the first one cancelled would be refused as ended.
    return ApiCall("DELETE", _job(id_or_prefix), CancelAnswer, _same, repeatable=False)


def retry(id_or_prefix: str) -> ApiCall[Job]:
    """Run a failed or cancelled job again."""
    from penstock.queue.job import Job

    return _post(f"{_job(id_or_prefix)}/retry", Job, {}, changes=True)


# Documents.


def documents(after: str, limit: int, filters: ListFilters) -> ApiCall[list[Source]]:
    """Find documents."""
    refuse_unknown("documents", filters, ListFilters)
    from penstock.catalog.values import Source

    return _get("/documents", list[Source], {"cursor": after or None, "limit": limit, **filters})


def projects() -> ApiCall[list[ProjectRecord]]:
    """List the folders of projects."""
    from penstock.service.documents import ProjectList

    return ApiCall("GET", "/projects", ProjectList, lambda answer: answer.projects)


def document(source_id: str) -> ApiCall[DocumentView]:
    """Find a document with all details."""
    from penstock.service.job_views import DocumentView

    return _get(f"/documents/{_id(source_id)}", DocumentView)


def page(source_id: str, number: int) -> ApiCall[ShownPage]:
    """Read the text of a page."""
    from penstock.service.pages import ShownPage

    return _get(f"/documents/{_id(source_id)}/pages/{int(number)}", ShownPage)


def search(query: str, options: SearchRequest) -> ApiCall[SearchResult]:
    """Find the best chunks."""
    refuse_unknown("search", options, SearchRequest)
    from penstock.service.hits import SearchResult

    return _post("/search", SearchResult, _with_none({"query": query, **options}), changes=False)


def _with_none(fields: dict[str, Any]) -> dict[str, Any]:
    """Encode ``per_source`` None as null: any number of hits. Left out, the default would count."""
    any_number = "per_source" in fields and fields["per_source"] is None
    return fields | {"per_source": msgspec.Raw(b"null")} if any_number else fields


def context(query: str, options: ContextOptions) -> ApiCall[PromptContext]:
    """Pack the best passages."""
    refuse_unknown("context", options, ContextOptions)
    from penstock.service.passages import PromptContext

    return _post("/context", PromptContext, {"query": query, **options}, changes=False)


def similar(
    path_or_id: str | os.PathLike[str], line: int | None, options: SimilarOptions
) -> ApiCall[list[Hit]]:
    """Find chunks like a given one."""
    refuse_unknown("similar", options, SimilarOptions)
    from penstock.service.hits import SearchResult

    fields = _with_none({"path_or_id": os.fspath(path_or_id), "line": line, **options})
    return ApiCall("POST", "/similar", SearchResult, lambda value: value.hits, _json(fields))


def why(path: str | os.PathLike[str], where: WhyOptions) -> ApiCall[Reason]:
    """Explain a path."""
    refuse_unknown("why", where, WhyOptions)
    from penstock.service.why import Reason

    return _get("/why", Reason, {"path": os.fspath(path), **where})


# The queue and the server.


def stats() -> ApiCall[Stats]:
    """Count jobs."""
    from penstock.service.requests import Stats

    return _get("/queue/stats", Stats)


def pause(tenant_id: str | None, collection: str | None) -> ApiCall[Scope]:
    """Pause a scope."""
    from penstock.queue.job import Scope

    return _post("/queue/pause", Scope, {"tenant_id": tenant_id, "collection": collection}, changes=False)


def resume(tenant_id: str | None, collection: str | None) -> ApiCall[int]:
    """Resume a scope."""
    scope = {"tenant_id": tenant_id, "collection": collection}
    kind: Any = dict[str, Any]
    return ApiCall("POST", "/queue/resume", kind, lambda value: int(value["released"]), _json(scope))


def health() -> ApiCall[dict[str, Any]]:
    """Ask whether the server answers."""
    return _get("/health", dict[str, Any])


def status() -> ApiCall[ServerStatus]:
    """Read the state of indexing."""
    from penstock.service.server import ServerStatus

    return _get("/health/status", ServerStatus)


def ready() -> ApiCall[Readiness]:
    """Check the stores."""
    from penstock.service.server import Readiness

    return _get("/health/ready", Readiness)


def events(job_id: str | None, last_id: str | None) -> ApiCall[None]:
    """Open a stream of events: of one job, or of all."""
    path = "/events" if job_id is None else f"{_job(job_id)}/events"
    headers = (("Last-Event-ID", last_id),) if last_id else ()
    return ApiCall("GET", path, None, _same, accept=f"{EVENTS}, {_PROBLEMS}", headers=headers)
