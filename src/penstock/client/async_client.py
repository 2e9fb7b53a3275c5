"""``AsyncClient``: the services of a server for programs with asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self, TypeVar, Unpack

from penstock import clock
from penstock.client import calls, exchange, streams
from penstock.client.connections import RECEIVED, tls_context
from penstock.client.exchange import (
    IDLE_S,
    INDEX_S,
    QUERY_S,
    RETRY_FOR_S,
    Address,
    Caller,
    Link,
    Patience,
    Steps,
)
from penstock.client.streams import Event
from penstock.client.uploads import file_name, opened

if TYPE_CHECKING:
    from penstock.catalog.graph import GraphCounts
    from penstock.catalog.rules.graph_values import Neighbourhood
    from penstock.catalog.views import Source
    from penstock.client.calls import ApiCall, ClientIndexOptions, Way
    from penstock.job import Job, Scope
    from penstock.service.document_filters import DocumentFilters
    from penstock.service.documents import Where
    from penstock.service.functions import CallOptions
    from penstock.service.graph import EntityReport
    from penstock.service.hits import Hit, SearchResult
    from penstock.service.job_filters import JobFilter
    from penstock.service.library_values import DocumentView, JobListing, JobOutcome, JobView
    from penstock.service.page_texts import ShownPage
    from penstock.service.passages import PromptContext
    from penstock.service.reasons import Reason
    from penstock.service.responses import CancelAnswer, Details, Receipt, Stats
    from penstock.service.search import SearchRequest
    from penstock.service.server_status import Readiness, ServerStatus
    from penstock.service.uploads import UploadRecord

T = TypeVar("T")


class _Streams(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class AsyncClient:
    """A server, for one event loop. The methods are those of ``Client``.

    async with AsyncClient("http://127.0.0.1:8765", key) as client:
        receipt = await client.index("docs")
        await client.wait(receipt.job_id, run=receipt.run)
        async for event in client.events(receipt.job_id):
            print(event.name, event.data)
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
        self._tls = tls_context(self._caller.address, certificates)
        self._idle: list[Link] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"AsyncClient({self._caller.address.url!r})"

    # Index.

    async def index(self, path: str | os.PathLike[str], **options: Unpack[ClientIndexOptions]) -> Receipt:
        """Index a file, or everything below a folder; see ``Documents.index`` for the options."""
        return await self._call(calls.index(path, options))

    async def add(self, path: str | os.PathLike[str], **options: Unpack[ClientIndexOptions]) -> Receipt:
        """Add and update documents, and remove none."""
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
        return await self._run(streams.wait(self._caller, id_or_prefix, run, timeout))

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
        stream, held = streams.EventFeed(self._caller, job_id, last_id), set[Link]()
        try:
            while (event := await self._run(stream.next(), held)) is not None:
                yield event
        finally:
            _close(held)

    # Documents.

    async def documents(
        self, *, after: str = "", limit: int = 50, **filters: Unpack[DocumentFilters]
    ) -> list[Source]:
        """Find documents, also failed ones, ordered by id; ``after`` is the last id of the previous page."""
        return await self._call(calls.documents(after, limit, filters))

    async def document(self, path_or_id: str, **where: Unpack[Where]) -> DocumentView:
        """Find a document with its generations, failed files inside it, and pages read by OCR.

        By its id from any collection, or by its path in one collection; a path has a slash.
        """
        return await self._run(streams.document(self._caller, path_or_id, where))

    async def page(self, path_or_id: str, number: int, **where: Unpack[Where]) -> ShownPage:
        """Read one page as it was read, with engine and confidence where its text was recognized."""
        return await self._run(streams.page(self._caller, path_or_id, number, where))

    async def delete(self, source_id: str) -> Receipt:
        """Queue the removal of a document from the index. Its file stays."""
        return await self._call(calls.remove(source_id))

    async def search(self, query: str, **options: Unpack[SearchRequest]) -> list[Hit]:
        """Find the best chunks for a query, best first."""
        return (await self.ask(query, **options)).hits

    async def ask(self, query: str, **options: Unpack[SearchRequest]) -> SearchResult:
        """Find the same hits as ``search``, with notes about missing ones."""
        return await self._call(calls.search(query, options))

    async def context(self, query: str, **options: Any) -> PromptContext:
        """Pack the best passages for a query into a budget of tokens; see ``Search.context``."""
        return await self._call(calls.context(query, options))

    async def similar(
        self, path_or_id: str | os.PathLike[str], line: int | None = None, **options: Any
    ) -> list[Hit]:
        """Find chunks of other documents like a document, or like its chunk at a line."""
        return await self._call(calls.similar(path_or_id, line, options))

    async def why(self, path: str | os.PathLike[str], **where: Unpack[Where]) -> Reason:
        """Explain why search does, or does not, find a path."""
        return await self._call(calls.why(path, where))

    async def graph_entity(self, name: str, **options: Any) -> list[EntityReport]:
        """Find the entities with a name, each with some of its mentions; see ``Graph.entity``."""
        return await self._call(calls.graph_entity(name, options))

    async def graph_neighbours(self, name: str, **options: Any) -> Neighbourhood:
        """Find the entities around those with a name, nearest first; see ``Graph.neighbours``."""
        return await self._call(calls.graph_neighbours(name, options))

    async def graph_path(self, source: str, target: str, *, tenant_id: str | None = None) -> Way | None:
        """Find the nodes and edges of a shortest way between two names; None without a way."""
        return await self._call(calls.graph_path(source, target, tenant_id))

    async def graph_counts(self, tenant_id: str | None = None) -> GraphCounts:
        """Count entities and relations by kind."""
        return await self._call(calls.graph_counts(tenant_id))

    # The queue and the server.

    async def stats(self) -> Stats:
        """Count jobs by status; pauses, living workers and warnings."""
        return await self._call(calls.stats())

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

    async def ready(self) -> Readiness:
        """Check that the server can use its stores, and count its workers."""
        return await self._call(calls.ready())

    # Steps.

    async def close(self) -> None:
        """Close the connections."""
        idle, self._idle = self._idle, []
        for link in idle:
            link.transport.writer.close()
            with suppress(OSError):
                await link.transport.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, call: ApiCall[T]) -> T:
        return await self._run(self._caller.call(call))

    async def _run(self, steps: Steps[T], held: set[Link] | None = None) -> T:
        """Carry out steps. Connections that are not given back are closed, unless the caller holds them."""
        taken = set[Link]() if held is None else held
        try:
            result: Any = None
            failure: OSError | None = None
            while True:
                step = steps.send(result) if failure is None else steps.throw(failure)
                result = failure = None
                try:
                    result = await self._perform(step, taken)
                except OSError as error:
                    failure = error
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            steps.close()
            if held is None:
                _close(taken)

    async def _perform(self, step: exchange.Step, taken: set[Link]) -> Any:
        if isinstance(step, exchange.Connect):
            async with asyncio.timeout(step.timeout_s):
                link = await self._connected(fresh=step.fresh)
            taken.add(link)
            return link
        if isinstance(step, exchange.Send):
            async with asyncio.timeout(step.timeout_s):
                step.link.transport.writer.write(step.data)
                return await step.link.transport.writer.drain()
        if isinstance(step, exchange.Receive):
            async with asyncio.timeout(step.timeout_s):
                return await step.link.transport.reader.read(RECEIVED)
        if isinstance(step, exchange.Sleep):
            return await asyncio.sleep(step.seconds)
        taken.discard(step.link)
        if isinstance(step, exchange.Release):
            step.link.idle_since = clock.elapsed_s()
            return self._idle.append(step.link)
        return step.link.transport.writer.close()

    async def _connected(self, *, fresh: bool) -> Link:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Connections belong to the loop that made them.
            self._idle, self._loop = [], loop
        while self._idle and not fresh:
            link = self._idle.pop()
            reader, writer = link.transport
            if (
                clock.elapsed_s() - link.idle_since < IDLE_S
                and not reader.at_eof()
                and not writer.is_closing()
            ):
                link.reused = True
                return link
            writer.close()
        address = self._caller.address
        name = address.host if self._tls is not None else None
        made = await asyncio.open_connection(address.host, address.port, ssl=self._tls, server_hostname=name)
        return Link(_Streams(*made))


def _close(links: set[Link]) -> None:
    while links:
        links.pop().transport.writer.close()
