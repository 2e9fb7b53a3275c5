"""``Client``: the services of a server for programs with threads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeVar, Unpack

from penstock.client import calls, graph_calls, transport, upkeep_calls
from penstock.client.calls import file_name, opened
from penstock.client.collection_calls import ClientCollections
from penstock.client.library_calls import ClientLibraries
from penstock.client.limit_calls import ClientLimits
from penstock.client.schedule_calls import ClientSchedules
from penstock.client.transport import (
    INDEX_S,
    QUERY_S,
    RECEIVED,
    RETRY_FOR_S,
    Address,
    Caller,
    Connections,
    Event,
    Link,
    Patience,
    Steps,
)
from penstock.service.requests import ClientIndexOptions, refuse_unknown

if TYPE_CHECKING:
    from penstock.catalog.graph import GraphCounts, Neighbourhood
    from penstock.catalog.values import PageState, Source
    from penstock.client.calls import ApiCall
    from penstock.client.graph_calls import Way
    from penstock.queue.job import Job, Scope
    from penstock.service.documents import Overview, ProjectRecord
    from penstock.service.functions import CallOptions
    from penstock.service.graph import EntityReport
    from penstock.service.hits import Hit, SearchResult
    from penstock.service.job_views import DocumentView, JobListing, JobOutcome, JobView
    from penstock.service.jobs import JobFilter
    from penstock.service.notes import NoteView
    from penstock.service.pages import ShownPage
    from penstock.service.passages import PromptContext
    from penstock.service.requests import (
        CancelAnswer,
        ContextOptions,
        Details,
        EntityOptions,
        FailedJobs,
        HistoryEntry,
        ListFilters,
        MovedWhere,
        NeighbourOptions,
        NoteChanges,
        NoteFilters,
        PathPlace,
        Receipt,
        RetryAnswer,
        SearchRequest,
        SimilarOptions,
        Stats,
        Where,
        WhyOptions,
    )
    from penstock.service.server import Readiness, ServerStatus
    from penstock.service.uploads import UploadRecord
    from penstock.service.why import Reason

T = TypeVar("T")


class Client:
    """A server. All threads of a process may share a client; it keeps connections open.

        with Client("http://127.0.0.1:8765", key) as client:
            receipt = client.index("docs")
            client.wait(receipt.job_id, run=receipt.run)
            for hit in client.search("how does the mill take in water"):
                print(hit.path, hit.snippet)

    Methods return the values of the library and raise its errors. Paths are those of the server: a relative
    one begins at its first root. The timeouts are seconds for an answer: to a submission, and to any other
    request. Requests that were not accepted (429, 503) are sent again for ``retry_for`` seconds.
    ``certificates``: a file of authorities to trust.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        index_timeout: float = INDEX_S,
        query_timeout: float = QUERY_S,
        retry_for: float = RETRY_FOR_S,
        certificates: str | os.PathLike[str] | None = None,
    ) -> None:
        self._caller = Caller(Address.of(url), key, Patience(index_timeout, query_timeout, retry_for))
        self._connections = Connections(self._caller.address, certificates)

    def __repr__(self) -> str:
        return f"Client({self._caller.address.url!r})"

    @property
    def schedules(self) -> ClientSchedules:
        """The schedules of the server."""
        return ClientSchedules(self)

    @property
    def libraries(self) -> ClientLibraries:
        """The libraries of the server."""
        return ClientLibraries(self)

    @property
    def collections(self) -> ClientCollections:
        """The collections of the server."""
        return ClientCollections(self)

    @property
    def limits(self) -> ClientLimits:
        """The limits of the server."""
        return ClientLimits(self)

    # Index.

    def index(self, path: str | os.PathLike[str], **options: Unpack[ClientIndexOptions]) -> Receipt:
        """Index a file, or everything below a folder; see ``Documents.index`` for the options."""
        return self._call(calls.index(path, options))

    def add(self, path: str | os.PathLike[str], **options: Unpack[ClientIndexOptions]) -> Receipt:
        """Add and update documents, and remove none."""
        refuse_unknown("add", options, ClientIndexOptions)
        options["operation"] = "add"
        return self._call(calls.index(path, options))

    def note(self, text: str, *, tag: str | None = None, **where: Unpack[Where]) -> Receipt:
        """Add a note. Equal texts are one note."""
        return self._call(calls.note(text, tag=tag, **where))

    def upload(
        self,
        file: str | os.PathLike[str] | BinaryIO,
        *,
        name: str | None = None,
        **options: Unpack[ClientIndexOptions],
    ) -> UploadRecord:
        """Send a file of this machine, and index it. ``name``: by default that of the file."""
        refuse_unknown("upload", options, ClientIndexOptions)
        with opened(file) as source:
            return self._call(calls.upload(source, name or file_name(source), options))

    def call(
        self,
        name: str,
        payload: Mapping[str, Any] | None = None,
        *,
        entity: tuple[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Receipt:
        """Queue a call of a function of the server's application."""
        return self._call(calls.function(name, payload, entity, options))

    # Jobs.

    def job(self, id_or_prefix: str) -> Job:
        """Find one job by id or by a unique prefix of an id."""
        return self.view(id_or_prefix).details.job

    def details(self, id_or_prefix: str) -> Details:
        """Find one job with queue position, history and the reason why it is waiting."""
        return self.view(id_or_prefix).details

    def view(self, id_or_prefix: str) -> JobView:
        """Find one job with its details and the report of its progress."""
        return self._call(calls.job(id_or_prefix))

    def jobs(self, **filters: Unpack[JobFilter]) -> list[Job]:
        """Find jobs, newest first; ``after`` is the last id of the previous page."""
        return self.listing(**filters).jobs

    def listing(self, **filters: Unpack[JobFilter]) -> JobListing:
        """Find jobs with the reports of their progress."""
        return self._call(calls.jobs(filters))

    def outcome(self, id_or_prefix: str) -> JobOutcome:
        """Read failed files at and below the path of a job, files inside others, and pages read by OCR."""
        return self._call(calls.outcome(id_or_prefix))

    def wait(self, id_or_prefix: str, *, run: int | None = None, timeout: float | None = None) -> Job:
        """Wait until the given run of a job has ended, or without ``run`` the whole job, and return the job.

        A server that restarts meanwhile is waited for. Raises ``TimeoutError`` after ``timeout`` seconds.
        """
        return self._run(transport.wait(self._caller, id_or_prefix, run, timeout))

    def cancel(self, id_or_prefix: str) -> CancelAnswer:
        """Cancel a job and its child jobs. Raises ``CannotCancel`` for an ended job."""
        return self._call(calls.cancel(id_or_prefix))

    def retry(self, id_or_prefix: str) -> Job:
        """Retry a failed or cancelled job."""
        return self._call(calls.retry(id_or_prefix))

    def events(self, job_id: str | None = None, *, last_id: str | None = None) -> Iterator[Event]:
        """Follow the events of one job to its end, or those of all jobs for ever.

        A broken stream is continued. ``last_id`` continues an earlier one.
        """
        stream, held = transport.EventFeed(self._caller, job_id, last_id), set[Link]()
        try:
            while (event := self._run(stream.next(), held)) is not None:
                yield event
        finally:
            _close(held)

    # Documents.

    def documents(self, *, after: str = "", limit: int = 50, **filters: Unpack[ListFilters]) -> list[Source]:
        """Find documents, also failed ones, ordered by id; ``after`` is the last id of the previous page."""
        return self._call(calls.documents(after, limit, filters))

    def document(self, path_or_id: str, **where: Unpack[PathPlace]) -> DocumentView:
        """Find a document with its generations, failed files inside it, and pages read by OCR.

        By its id from any collection, or by its path in one collection; a path has a slash.
        """
        return self._run(transport.document(self._caller, path_or_id, where))

    def page(self, path_or_id: str, number: int, **where: Unpack[PathPlace]) -> ShownPage:
        """Read one page as it was read, with engine and confidence where its text was recognized."""
        return self._run(transport.page(self._caller, path_or_id, number, where))

    def delete(self, source_id: str) -> Receipt:
        """Queue the removal of a document from the index. Its file stays."""
        return self._call(calls.remove(source_id))

    def history(self, path_or_id: str, **where: Unpack[PathPlace]) -> list[HistoryEntry]:
        """Read when a document was indexed, updated, renamed and removed."""
        return self._call(upkeep_calls.history(path_or_id, where))

    def pages(self, source_id: str, *, limit: int = 100) -> list[PageState]:
        """Read the states of the first pages of a document."""
        return self._call(upkeep_calls.pages(source_id, limit))

    def rename(self, old: str, new: str, **where: Unpack[MovedWhere]) -> Receipt:
        """Queue the record that a file or folder of the server was moved."""
        return self._call(upkeep_calls.rename(old, new, where))

    def remove(self, path_or_id: str, **where: Unpack[PathPlace]) -> Receipt:
        """Queue the removal of a document or folder from the index. Files stay."""
        return self._call(upkeep_calls.remove_path(path_or_id, where))

    def remove_tenant(self, name: str) -> Receipt:
        """Queue the removal of all documents and jobs of a tenant."""
        return self._call(upkeep_calls.remove_tenant(name))

    def overview(self, tenant_id: str | None = None) -> Overview:
        """Count documents and chunks by tenant and collection."""
        return self._call(upkeep_calls.overview(tenant_id))

    def notes(self, **filters: Unpack[NoteFilters]) -> list[NoteView]:
        """List notes, newest first, without their texts; see ``Notebook.page`` for the filters."""
        return self._call(upkeep_calls.notes(filters))

    def read_note(self, note_id: str, *, tenant_id: str | None = None) -> NoteView:
        """Read a note with its text."""
        return self._call(upkeep_calls.note(note_id, tenant_id))

    def replace_note(self, note_id: str, text: str, **options: Unpack[NoteChanges]) -> Receipt:
        """Queue a new text of a note. Options: ``tag``, ``drop_tags`` and ``tenant_id``."""
        return self._call(upkeep_calls.replace_note(note_id, text, options))

    def remove_note(self, note_id: str, *, tenant_id: str | None = None) -> Receipt:
        """Queue the removal of a note."""
        return self._call(upkeep_calls.remove_note(note_id, tenant_id))

    def search(self, query: str, **options: Unpack[SearchRequest]) -> list[Hit]:
        """Find the best chunks for a query, best first."""
        return self.ask(query, **options).hits

    def ask(self, query: str, **options: Unpack[SearchRequest]) -> SearchResult:
        """Find the same hits as ``search``, with notes about missing ones."""
        return self._call(calls.search(query, options))

    def context(self, query: str, **options: Unpack[ContextOptions]) -> PromptContext:
        """Pack the best passages for a query into a budget of tokens; see ``Search.context``."""
        return self._call(calls.context(query, options))

    def similar(
        self,
        path_or_id: str | os.PathLike[str],
        line: int | None = None,
        **options: Unpack[SimilarOptions],
    ) -> list[Hit]:
        """Find chunks of other documents like a document, or like its chunk at a line."""
        return self._call(calls.similar(path_or_id, line, options))

    def why(self, path: str | os.PathLike[str], **where: Unpack[WhyOptions]) -> Reason:
        """Explain why search does, or does not, find a path."""
        return self._call(calls.why(path, where))

    def graph_entity(self, name: str, **options: Unpack[EntityOptions]) -> list[EntityReport]:
        """Find the entities with a name, each with some of its mentions; see ``Graph.entity``."""
        return self._call(graph_calls.entity(name, options))

    def graph_neighbours(self, name: str, **options: Unpack[NeighbourOptions]) -> Neighbourhood:
        """Find the entities around those with a name, nearest first; see ``Graph.neighbours``."""
        return self._call(graph_calls.neighbours(name, options))

    def graph_path(self, source: str, target: str, *, tenant_id: str | None = None) -> Way | None:
        """Find the nodes and edges of a shortest way between two names; None without a way."""
        return self._call(graph_calls.path(source, target, tenant_id))

    def graph_counts(self, tenant_id: str | None = None) -> GraphCounts:
        """Count entities and relations by kind."""
        return self._call(graph_calls.counts(tenant_id))

    # The queue and the server.

    def stats(self) -> Stats:
        """Count jobs by status; pauses, living workers and warnings."""
        return self._call(calls.stats())

    def retry_failed(self, **filters: Unpack[FailedJobs]) -> RetryAnswer:
        """Retry all failed jobs of a ``tenant_id``, ``collection`` or ``item_type``."""
        return self._call(upkeep_calls.retry_failed(filters))

    def purge(self, *, status: Sequence[str], older_than: timedelta = timedelta(0)) -> int:
        """Remove ended jobs for good; return their number."""
        return self._call(upkeep_calls.purge(status, older_than))

    def pause(self, *, tenant_id: str | None = None, collection: str | None = None) -> Scope:
        """Pause a tenant, a collection, or a tenant's collection; running jobs continue."""
        return self._call(calls.pause(tenant_id, collection))

    def resume(self, *, tenant_id: str | None = None, collection: str | None = None) -> int:
        """Resume exactly this paused scope; return the number of jobs released at once."""
        return self._call(calls.resume(tenant_id, collection))

    def health(self) -> dict[str, Any]:
        """Ask whether the server answers; needs no key."""
        return self._call(calls.health())

    def status(self) -> ServerStatus:
        """Running jobs, the length of the queue and the sizes of the stores."""
        return self._call(calls.status())

    def projects(self) -> list[ProjectRecord]:
        """List the folders that were indexed as projects, by name and folder."""
        return self._call(calls.projects())

    def ready(self) -> Readiness:
        """Check that the server can use its stores, and count its workers."""
        return self._call(calls.ready())

    # Steps.

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, call: ApiCall[T]) -> T:
        return self._run(self._caller.call(call))

    def _run(self, steps: Steps[T], held: set[Link] | None = None) -> T:
        """Carry out steps. Connections that are not given back are closed, unless the caller holds them."""
        taken = set[Link]() if held is None else held
        try:
            result: Any = None
            failure: OSError | None = None
            while True:
                step = steps.send(result) if failure is None else steps.throw(failure)
                result = failure = None
                try:
                    result = self._perform(step, taken)
                except OSError as error:
                    failure = error
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            steps.close()
            if held is None:
                _close(taken)

    def _perform(self, step: transport.Step, taken: set[Link]) -> Any:
        if isinstance(step, transport.Connect):
            link = self._connections.take(step.timeout_s, fresh=step.fresh)
            taken.add(link)
            return link
        if isinstance(step, transport.Send):
            step.link.transport.settimeout(step.timeout_s)
            return step.link.transport.sendall(step.data)
        if isinstance(step, transport.Receive):
            step.link.transport.settimeout(step.timeout_s)
            return step.link.transport.recv(RECEIVED)
        if isinstance(step, transport.Release):
            taken.discard(step.link)
            return self._connections.give_back(step.link)
        if isinstance(step, transport.Drop):
            taken.discard(step.link)
            return step.link.transport.close()
        return time.sleep(step.seconds)


def _close(links: set[Link]) -> None:
    while links:
        with suppress(OSError):
            links.pop().transport.close()
