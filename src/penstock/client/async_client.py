"""``AsyncClient``: the services of a server for programs with asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack

from penstock.client import calls, graph_calls, transport, upkeep_calls
from penstock.client.async_resources import AsyncCollections, AsyncLibraries, AsyncLimits, AsyncSchedules
from penstock.client.async_transport import AsyncTransport, close_all
from penstock.client.calls import file_name, opened
from penstock.client.transport import Event, Link
from penstock.service.requests import ClientIndexOptions, refuse_unknown

if TYPE_CHECKING:
    from penstock.catalog.graph import GraphCounts, Neighbourhood
    from penstock.catalog.values import PageState, Source
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


class AsyncClient(AsyncTransport):
    """A server, for one event loop. The methods are those of ``Client``.

    async with AsyncClient("http://127.0.0.1:8765", key) as client:
        receipt = await client.index("docs")
        await client.wait(receipt.job_id, run=receipt.run)
        async for event in client.events(receipt.job_id):
            print(event.name, event.data)
    """

    def __repr__(self) -> str:
        return f"AsyncClient({self._caller.address.url!r})"

    @property
    def schedules(self) -> AsyncSchedules:
        """The schedules of the server."""
        return AsyncSchedules(self)

    @property
    def libraries(self) -> AsyncLibraries:
        """The libraries of the server."""
        return AsyncLibraries(self)

    @property
    def collections(self) -> AsyncCollections:
        """The collections of the server."""
        return AsyncCollections(self)

    @property
    def limits(self) -> AsyncLimits:
        """The limits of the server."""
        return AsyncLimits(self)

    # Index.

    async def index(self, path: str | os.PathLike[str], **options: Unpack[ClientIndexOptions]) -> Receipt:
        """Index a file, or everything below a folder; see ``Documents.index`` for the options."""
        return await self._call(calls.index(path, options))

    async def add(self, path: str | os.PathLike[str], **options: Unpack[ClientIndexOptions]) -> Receipt:
        """Add and update documents, and remove none."""
        refuse_unknown("add", options, ClientIndexOptions)
        options["operation"] = "add"
        return await self._call(calls.index(path, options))

    async def note(self, text: str, *, tag: str | None = None, **where: Unpack[Where]) -> Receipt:
        """Add a note. Equal texts are one note."""
        return await self._call(calls.note(text, tag=tag, **where))

    async def upload(
        self,
        file: str | os.PathLike[str] | BinaryIO,
        *,
        name: str | None = None,
        **options: Unpack[ClientIndexOptions],
    ) -> UploadRecord:
        """Send a file of this machine, and index it. ``name``: by default that of the file."""
        refuse_unknown("upload", options, ClientIndexOptions)
        with opened(file) as source:
            return await self._call(calls.upload(source, name or file_name(source), options))

    async def call(
        self,
        name: str,
        payload: Mapping[str, Any] | None = None,
        *,
        entity: tuple[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Receipt:
        """Queue a call of a function of the server's application."""
        return await self._call(calls.function(name, payload, entity, options))

    # Jobs.

    async def job(self, id_or_prefix: str) -> Job:
        """Find one job by id or by a unique prefix of an id."""
        return (await self.view(id_or_prefix)).details.job

    async def details(self, id_or_prefix: str) -> Details:
        """Find one job with queue position, history and the reason why it is waiting."""
        return (await self.view(id_or_prefix)).details

    async def view(self, id_or_prefix: str) -> JobView:
        """Find one job with its details and the report of its progress."""
        return await self._call(calls.job(id_or_prefix))

    async def jobs(self, **filters: Unpack[JobFilter]) -> list[Job]:
        """Find jobs, newest first; ``after`` is the last id of the previous page."""
        return (await self.listing(**filters)).jobs

    async def listing(self, **filters: Unpack[JobFilter]) -> JobListing:
        """Find jobs with the reports of their progress."""
        return await self._call(calls.jobs(filters))

    async def outcome(self, id_or_prefix: str) -> JobOutcome:
        """Read failed files at and below the path of a job, files inside others, and pages read by OCR."""
        return await self._call(calls.outcome(id_or_prefix))

    async def wait(self, id_or_prefix: str, *, run: int | None = None, timeout: float | None = None) -> Job:
        """Wait until the given run of a job has ended, or without ``run`` the whole job, and return the job.

        A server that restarts meanwhile is waited for. Raises ``TimeoutError`` after ``timeout`` seconds.
        """
        return await self._run(transport.wait(self._caller, id_or_prefix, run, timeout))

    async def cancel(self, id_or_prefix: str) -> CancelAnswer:
        """Cancel a job and its child jobs. Raises ``CannotCancel`` for an ended job."""
        return await self._call(calls.cancel(id_or_prefix))

    async def retry(self, id_or_prefix: str) -> Job:
        """Retry a failed or cancelled job."""
        return await self._call(calls.retry(id_or_prefix))

    async def events(self, job_id: str | None = None, *, last_id: str | None = None) -> AsyncIterator[Event]:
        """Follow the events of one job to its end, or those of all jobs for ever.

        A broken stream is continued. ``last_id`` continues an earlier one.
        """
        stream, held = transport.EventFeed(self._caller, job_id, last_id), set[Link]()
        try:
            while (event := await self._run(stream.next(), held)) is not None:
                yield event
        finally:
            close_all(held)

    # Documents.

    async def documents(
        self, *, after: str = "", limit: int = 50, **filters: Unpack[ListFilters]
    ) -> list[Source]:
        """Find documents, also failed ones, ordered by id; ``after`` is the last id of the previous page."""
        return await self._call(calls.documents(after, limit, filters))

    async def document(self, path_or_id: str, **where: Unpack[PathPlace]) -> DocumentView:
        """Find a document with its generations, failed files inside it, and pages read by OCR.

        By its id from any collection, or by its path in one collection; a path has a slash.
        """
        return await self._run(transport.document(self._caller, path_or_id, where))

    async def page(self, path_or_id: str, number: int, **where: Unpack[PathPlace]) -> ShownPage:
        """Read one page as it was read, with engine and confidence where its text was recognized."""
        return await self._run(transport.page(self._caller, path_or_id, number, where))

    async def delete(self, source_id: str) -> Receipt:
        """Queue the removal of a document from the index. Its file stays."""
        return await self._call(calls.remove(source_id))

    async def history(self, path_or_id: str, **where: Unpack[PathPlace]) -> list[HistoryEntry]:
        """Read when a document was indexed, updated, renamed and removed."""
        return await self._call(upkeep_calls.history(path_or_id, where))

    async def pages(self, source_id: str, *, limit: int = 100) -> list[PageState]:
        """Read the states of the first pages of a document."""
        return await self._call(upkeep_calls.pages(source_id, limit))

    async def rename(self, old: str, new: str, **where: Unpack[MovedWhere]) -> Receipt:
        """Queue the record that a file or folder of the server was moved."""
        return await self._call(upkeep_calls.rename(old, new, where))

    async def remove(self, path_or_id: str, **where: Unpack[PathPlace]) -> Receipt:
        """Queue the removal of a document or folder from the index. Files stay."""
        return await self._call(upkeep_calls.remove_path(path_or_id, where))

    async def remove_tenant(self, name: str) -> Receipt:
        """Queue the removal of all documents and jobs of a tenant."""
        return await self._call(upkeep_calls.remove_tenant(name))

    async def overview(self, tenant_id: str | None = None) -> Overview:
        """Count documents and chunks by tenant and collection."""
        return await self._call(upkeep_calls.overview(tenant_id))

    async def notes(self, **filters: Unpack[NoteFilters]) -> list[NoteView]:
        """List notes, newest first, without their texts; see ``Notebook.page`` for the filters."""
        return await self._call(upkeep_calls.notes(filters))

    async def read_note(self, note_id: str, *, tenant_id: str | None = None) -> NoteView:
        """Read a note with its text."""
        return await self._call(upkeep_calls.note(note_id, tenant_id))

    async def replace_note(self, note_id: str, text: str, **options: Unpack[NoteChanges]) -> Receipt:
        """Queue a new text of a note. Options: ``tag``, ``drop_tags`` and ``tenant_id``."""
        return await self._call(upkeep_calls.replace_note(note_id, text, options))

    async def remove_note(self, note_id: str, *, tenant_id: str | None = None) -> Receipt:
        """Queue the removal of a note."""
        return await self._call(upkeep_calls.remove_note(note_id, tenant_id))

    async def search(self, query: str, **options: Unpack[SearchRequest]) -> list[Hit]:
        """Find the best chunks for a query, best first."""
        return (await self.ask(query, **options)).hits

    async def ask(self, query: str, **options: Unpack[SearchRequest]) -> SearchResult:
        """Find the same hits as ``search``, with notes about missing ones."""
        return await self._call(calls.search(query, options))

    async def context(self, query: str, **options: Unpack[ContextOptions]) -> PromptContext:
        """Pack the best passages for a query into a budget of tokens; see ``Search.context``."""
        return await self._call(calls.context(query, options))

    async def similar(
        self,
        path_or_id: str | os.PathLike[str],
        line: int | None = None,
        **options: Unpack[SimilarOptions],
    ) -> list[Hit]:
        """Find chunks of other documents like a document, or like its chunk at a line."""
        return await self._call(calls.similar(path_or_id, line, options))

    async def why(self, path: str | os.PathLike[str], **where: Unpack[WhyOptions]) -> Reason:
        """Explain why search does, or does not, find a path."""
        return await self._call(calls.why(path, where))

    async def graph_entity(self, name: str, **options: Unpack[EntityOptions]) -> list[EntityReport]:
        """Find the entities with a name, each with some of its mentions; see ``Graph.entity``."""
        return await self._call(graph_calls.entity(name, options))

    async def graph_neighbours(self, name: str, **options: Unpack[NeighbourOptions]) -> Neighbourhood:
        """Find the entities around those with a name, nearest first; see ``Graph.neighbours``."""
        return await self._call(graph_calls.neighbours(name, options))

    async def graph_path(self, source: str, target: str, *, tenant_id: str | None = None) -> Way | None:
        """Find the nodes and edges of a shortest way between two names; None without a way."""
        return await self._call(graph_calls.path(source, target, tenant_id))

    async def graph_counts(self, tenant_id: str | None = None) -> GraphCounts:
        """Count entities and relations by kind."""
        return await self._call(graph_calls.counts(tenant_id))

    # The queue and the server.

    async def stats(self) -> Stats:
        """Count jobs by status; pauses, living workers and warnings."""
        return await self._call(calls.stats())

    async def retry_failed(self, **filters: Unpack[FailedJobs]) -> RetryAnswer:
        """Retry all failed jobs of a ``tenant_id``, ``collection`` or ``item_type``."""
        return await self._call(upkeep_calls.retry_failed(filters))

    async def purge(self, *, status: Sequence[str], older_than: timedelta = timedelta(0)) -> int:
        """Remove ended jobs for good; return their number."""
        return await self._call(upkeep_calls.purge(status, older_than))

    async def pause(self, *, tenant_id: str | None = None, collection: str | None = None) -> Scope:
        """Pause a tenant, a collection, or a tenant's collection; running jobs continue."""
        return await self._call(calls.pause(tenant_id, collection))

    async def resume(self, *, tenant_id: str | None = None, collection: str | None = None) -> int:
        """Resume exactly this paused scope; return the number of jobs released at once."""
        return await self._call(calls.resume(tenant_id, collection))

    async def health(self) -> dict[str, Any]:
        """Ask whether the server answers; needs no key."""
        return await self._call(calls.health())

    async def status(self) -> ServerStatus:
        """Running jobs, the length of the queue and the sizes of the stores."""
        return await self._call(calls.status())

    async def projects(self) -> list[ProjectRecord]:
        """List the folders that were indexed as projects, by name and folder."""
        return await self._call(calls.projects())

    async def ready(self) -> Readiness:
        """Check that the server can use its stores, and count its workers."""
        return await self._call(calls.ready())
