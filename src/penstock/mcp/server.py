"""The MCP server: tools and resources for agents, their texts, and their ways in, standard input and HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar

import anyio
import anyio.to_thread
import msgspec
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    MCPServer,
    Resolve,
)
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp_types import CallToolResult, InputRequiredResult, Tool, ToolAnnotations
from pydantic import BaseModel, Field

from penstock import clock
from penstock.catalog.graph import Neighbourhood
from penstock.errors import (
    InvalidRequest,
    JobNotFound,
    NotConfirmed,
    OutputFailed,
    PenstockError,
    UnknownDocument,
)
from penstock.extensions import is_installed
from penstock.service import paths
from penstock.service.access import LOCAL, KeyScope, PathPolicy, Principal
from penstock.service.documents import DocumentPage, DocumentRecord, DocumentRecords, Documents
from penstock.service.hits import Coverage, coverage_text
from penstock.service.job_views import JobDetail, JobRecords, SubmitRecord
from penstock.service.jobs import Jobs
from penstock.service.pages import ShownPage
from penstock.service.passages import PromptContext, place_text
from penstock.service.projects import Placement, SearchScope, WantedPlace
from penstock.service.search import SearchResult
from penstock.service.why import Reason
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from penstock.assembly import Assembly
    from penstock.catalog.values import Source


_CHUNK = 1 << 16


@contextmanager
def _input_ends_at_interrupt() -> Iterator[None]:
    """Copy standard input through a pipe, and end it at Ctrl-C; the block then has to return.

    Raises KeyboardInterrupt after a block that returned so.
    """
    source = os.dup(0)
    read, write = os.pipe()
    os.dup2(read, 0)
    os.close(read)
    interrupted = threading.Event()

    def end_input() -> None:
        # The number stays in use, as the other thread may be writing to it.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, write, inheritable=False)
        os.close(nothing)

    def copy() -> None:
        try:
            while chunk := os.read(source, _CHUNK):
                while chunk:
                    chunk = chunk[os.write(write, chunk) :]
        except OSError:
            pass  # the input cannot be read, or the server reads no more: both end it
        end_input()

    def interrupt(*_: object) -> None:
        interrupted.set()
        end_input()

    former = signal.signal(signal.SIGINT, interrupt)
    threading.Thread(target=copy, daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if interrupted.is_set():
        raise KeyboardInterrupt


_SNIPPET = 400
"""Characters of a hit's text."""


def error_text(error: PenstockError) -> str:
    """Code, message and remedy of a refusal."""
    return f"{error.code}: {error.message}. {error.remedy}"


def _chunk_uri(source_id: str, chunk_id: str) -> str:
    """The address of a chunk: ids of chunks are found below their document."""
    return f"chunk://{source_id}.{chunk_id}"


def _search_text(found: SearchResult) -> str:
    """Hits with place, heading and the beginning of the text that matches."""
    lines = [f'"{each.word}" occurs nowhere: searched for "{each.searched}".' for each in found.corrections]
    lines += found.notes
    if not found.hits:
        return "\n".join([*lines, "No hits.", _covered(found.covered)])
    for number, hit in enumerate(found.hits, 1):
        weak = " (weak)" if hit.weak else ""
        lines += [
            f"{number}. {place_text(hit)}{weak}",
            f"   {_one_line(hit.snippet or hit.text, _SNIPPET)}",
            f"   {_chunk_uri(hit.source_id, hit.chunk_id)}",
        ]
    return "\n".join([*lines, _covered(found.covered)])


def _covered(covered: Coverage) -> str:
    """The line that says what was searched, and how to search all."""
    how = "" if covered.everything else " Search everything with: all=true"
    return coverage_text(covered) + how


def _context_text(found: PromptContext) -> str:
    """Passages with their numbers, after notes and corrections."""
    lines = [f'"{each.word}" occurs nowhere: searched for "{each.searched}".' for each in found.corrections]
    return "\n".join([*lines, *found.notes, found.text or "No passages.", _covered(found.covered)])


def _receipt_text(receipt: SubmitRecord) -> str:
    """The job of a request."""
    return "\n".join([f"{receipt.message}: job {receipt.job_id}, {receipt.status}", *(receipt.notes or ())])


def job_text(job: JobDetail) -> str:
    """Status, progress and reason of a job; what failed, with the remedy."""
    what = job.folder_path or f"{job.item_type} {job.op}"
    lines = [f"{job.job_id}: {job.status}, {what}"]
    progress = job.progress
    if progress.files_total:
        done = "unknown" if progress.files_processed is None else f"{progress.files_processed:,}"
        lines.append(
            f"files: {done} of {progress.files_total:,}, {how_many(progress.chunks_created, 'chunk')}"
        )
    if job.time_left_s is not None and job.status == "running":
        lines.append(f"time left: about {job.time_left_s:.0f} s")
    if job.reason:
        lines.append(f"waits: {job.reason}")
    if job.error:
        code = f"{job.error_code}: " if job.error_code else ""
        lines.append(f"error: {code}{job.error}")
    if job.remedy:
        lines.append(f"remedy: {job.remedy}")
    return "\n".join(lines)


def _documents_text(page: DocumentPage) -> str:
    """One line for each document."""
    if not page.documents:
        return "No documents."
    more = ["More documents follow; narrow the path."] if page.next else []
    return "\n".join([*map(_document_line, page.documents), *more])


def _page_text(page: ShownPage) -> str:
    """The text of a page, after a line with its place."""
    of = f", page {page.page} of {page.page_count}" if page.page_count > 1 else ""
    lines = [f"{page.path}{of} (document://{page.source_id})"]
    lines += [f"warning: {warning}" for warning in page.warnings]
    if page.error:
        lines.append(f"error: {page.error}")
    return "\n".join([*lines, "", page.text])


def _reason_text(reason: Reason) -> str:
    """The reason why search finds a path or not, and the remedy."""
    lines = [f"{reason.path}: {reason.verdict}", reason.cause]
    lines += [f"warning: {warning}" for warning in reason.warnings]
    lines += [f"missing: {missing}" for missing in reason.missing]
    lines += [f"{state}: {number:,}" for state, number in sorted(reason.counts.items())]
    if reason.job_id:
        lines.append(f"job: {reason.job_id}")
    if reason.remedy:
        lines.append(f"remedy: {reason.remedy}")
    return "\n".join(filter(None, lines))


def _neighbourhood_text(found: Neighbourhood) -> str:
    """Relations of a neighbourhood, one a line, after its entities."""
    names = {node.id: f"{node.name} ({node.kind})" for node, _distance in found.nodes}
    relations = [
        f"{names[edge.source]} -[{edge.kind}]-> {names[edge.target]}"
        for edge in found.edges
        if edge.source in names and edge.target in names
    ]
    return "\n".join([f"Entities: {_listed(names.values())}", *relations])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _document_line(document: DocumentRecord) -> str:
    pages = f", {how_many(document.pages, 'page')}" if document.pages > 1 else ""
    error = f", {document.error}" if document.error else ""
    return f"{document.path} ({document.status}{pages}{error}) document://{document.source_id}"


def _one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


_MOST_HITS, MOST_DOCUMENTS, _MOST_TOKENS = 50, 200, 50_000


class Toolbox:
    """The tools for one agent: ``principal`` bounds its tenants and scope, ``policy`` its paths.

    Without a policy, paths are those of the person who started the server. Safe to use from several threads.
    """

    def __init__(
        self, assembly: Assembly, *, policy: PathPolicy | None = None, principal: Principal = LOCAL
    ) -> None:
        self._assembly = assembly
        self._policy = policy
        self._principal = principal
        # Jobs get the priorities of agents, also inside an HTTP server.
        self._work = Jobs(assembly.queue, assembly.settings, door="mcp")
        self._index = Documents(assembly.catalog, self._work, assembly.settings, principal)
        self._jobs = JobRecords(self._work)
        self._documents = DocumentRecords(self._index)

    # Search.

    def search(
        self,
        query: str,
        limit: int = 8,
        collection: str | None = None,
        path: str | None = None,
        mode: Literal["hybrid", "keyword", "vector"] = "hybrid",
        library: str | None = None,
        project: str | None = None,
        every: bool = False,
    ) -> str:
        """Hits of a query, with places and snippets."""
        self._require("read")
        found = self._assembly.search.ask(
            query,
            limit=_within("limit", limit, _MOST_HITS),
            mode=mode,
            collection=collection,
            path=path,
            library=library,
            within=self._scope(project, library, every=every),
        )
        return _search_text(found)

    def context(
        self, query: str, max_tokens: int = 2_000, project: str | None = None, every: bool = False
    ) -> str:
        """Passages of a query within a budget of tokens, with numbers to cite."""
        self._require("read")
        budget = _within("max_tokens", max_tokens, _MOST_TOKENS)
        found = self._assembly.search.context(
            query, max_tokens=budget, within=self._scope(project, every=every)
        )
        return _context_text(found)

    def graph_neighbours(self, name: str, hops: int = 1) -> str:
        """Entities and relations around a name."""
        self._require("read")
        found = self._assembly.graph.neighbours(
            name, hops=_within("hops", hops, 4), tenant_id=self._place().tenant_id
        )
        return _neighbourhood_text(found)

    # Work.

    def add_note(
        self, text: str, tags: list[str] | None = None, collection: str | None = None
    ) -> SubmitRecord:
        """Queue a note."""
        self._require("write")
        receipt = self._index.note(text, tag=tags, collection=collection, tenant_id=self._tenant())
        return self._jobs.receipt(receipt)

    def index_path(
        self,
        path: str,
        include_code: bool | None = None,
        collection: str | None = None,
        project: bool | None = None,
    ) -> SubmitRecord:
        """Queue a file or folder."""
        self._require("write")
        receipt = self._index.index(
            self._resolve(path),
            include_code=include_code,
            collection=collection,
            project=project,
        )
        return self._jobs.receipt(receipt)

    def job(self, job_id: str) -> JobDetail:
        """One job of this agent's tenants."""
        self._require("read")
        return self._jobs.detail(self._jobs.own(job_id, self._principal.tenants))

    def cancel_job(self, job_id: str) -> str:
        """Cancel a job, or ask its worker to stop."""
        self._require("write")
        self._jobs.own(job_id, self._principal.tenants)
        answer = self._work.cancel(job_id)
        return f"{answer.status}: {answer.message}"

    def retry_job(self, job_id: str) -> str:
        """Queue a failed or cancelled job again."""
        self._require("write")
        self._jobs.own(job_id, self._principal.tenants)
        self._index.retry(job_id)
        return job_text(self.job(job_id))

    # Documents.

    def list_documents(self, path: str | None = None, limit: int = 50, project: str | None = None) -> str:
        """Documents, one a line; ``path`` is a glob or a folder."""
        self._require("read")
        most = _within("limit", limit, MOST_DOCUMENTS)
        filters = self._scope(project).without_notes().filters[0]
        found = self._documents.page(
            path=path, limit=most, tenant_id=filters["tenant_id"], branch=filters.get("branch")
        )
        return _documents_text(found)

    def read_document(self, path_or_id: str, page: int = 1) -> str:
        """The text of one page of a document."""
        self._require("read")
        found = self._source(path_or_id)
        return _page_text(self._index.page(found.source_id, page, tenant_id=found.place.tenant_id))

    def why(self, path: str, project: str | None = None, every: bool = False) -> str:
        """The reason why search does, or does not, find a path."""
        self._require("read")
        return _reason_text(self._index.why(self._named(path), project=project, all=every))

    # Resources.

    def job_resource(self, job_id: str) -> str:
        """A job as JSON."""
        return _as_json(self.job(job_id))

    def document_resource(self, source_id: str) -> str:
        """A document with its versions and pages as JSON."""
        self._require("read")
        own = self._documents.own(source_id, self._principal.tenants)
        return _as_json(self._documents.detail(own))

    def chunk_resource(self, address: str) -> str:
        """The text of a chunk, by the ids of its document and its own."""
        self._require("read")
        source_id, _, chunk_id = address.rpartition(".")
        own = self._documents.own(source_id, self._principal.tenants)
        with self._assembly.catalog.snapshot() as snapshot:
            found = snapshot.locate(own.source_id, [chunk_id])
            views = snapshot.hydrate(list(found.values()))
        if not views or views[0] is None:
            raise UnknownDocument(f"no chunk {chunk_id[:80]!a} in search", remedy="Search again.")
        return views[0].text

    def _resolve(self, path: str) -> str:
        """From a path as the agent wrote it to the path that may be used; raises ``PathOutside``."""
        if self._policy is not None:
            return self._policy.allowed(path, allow_external=True)
        return paths.off_disk(path) or os.path.abspath(path)  # noqa: PTH100 - links stay

    def _named(self, path: str) -> str:
        """The path of a document. Documents of web pages and libraries need no permission to fetch."""
        paths.refuse_unusable(path)
        if self._policy is not None and self._principal.confined:
            return self._policy.document(path, self._index.knows)
        return paths.off_disk(path) or self._resolve(path)

    def _source(self, path_or_id: str) -> Source:
        """The document with an id, or at a path."""
        try:
            return self._documents.own(path_or_id.removeprefix("document://"), self._principal.tenants)
        except UnknownDocument:
            return self._index.source(self._named(path_or_id))

    @property
    def _is_person(self) -> bool:
        """The agent works for the person who started the server, in the folder of the server."""
        return self._principal is LOCAL

    def _place(self) -> Placement:
        """Tenant and branch of documents in the folder of the server, for a person; see decision 0073."""
        if not self._is_person:
            return Placement(self._tenant())
        return self._index.projects.for_reading(os.curdir, WantedPlace())

    def _scope(
        self, project: str | None = None, library: str | None = None, *, every: bool = False
    ) -> SearchScope:
        """The scope of a search: as asked for, else the project of the folder of the server.

        Libraries belong to the person, not to a project.
        """
        projects = self._index.projects
        if project is not None or every or library is not None or not self._is_person:
            return projects.search_scope(project=project, every=every)
        return projects.scope_at(self._place())

    def _tenant(self) -> str:
        return self._principal.tenant(None, self._assembly.settings.tenant_id)

    def _require(self, scope: KeyScope) -> None:
        self._principal.require(scope)


def _within(name: str, given: int, most: int) -> int:
    if not 1 <= given <= most:
        raise InvalidRequest(f"{name}: expected 1 to {most:,}, got {given}")
    return given


def _as_json(record: Any) -> str:
    return msgspec.json.encode(record).decode()


P = ParamSpec("P")
T = TypeVar("T")

LOOK_S = 0.25
"""Time between two looks at a job that is waited for."""
_CHECKED_EVERY = 8
"""Looks between two checks that a worker runs."""
_MOST_WAIT_S = 600.0

_INSTRUCTIONS = (
    "Penstock indexes files, folders and notes and searches them. Search first; cite paths and lines as "
    "given. What is missing may not be indexed: `why` explains a path, `index_path` adds it. "
    "Work runs as jobs: `wait_for_job` follows one to its end."
)

_ToolboxOf = Callable[[Any], Toolbox]
"""The toolbox for the sender of a request, given the context of the call."""

_JobId = Annotated[str, Field(description="Id of a job, as index_path and add_note return it.")]
Query = Annotated[str, Field(description='What to find, in plain words; "quoted words" are required.')]
Collection = Annotated[str | None, Field(description="Collection of documents. Default: all of them.")]
Project = Annotated[
    str | None, Field(description="Name of a project. Default: the one of the folder of the server.")
]
All = Annotated[bool, Field(description="Every project, and all documents outside of them.")]
READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADD = ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_CANCEL = ToolAnnotations(destructive_hint=True, open_world_hint=False)


class Confirmation(BaseModel):
    """Answer of a person to the question whether to cancel."""

    confirm: bool = Field(description="Cancel the job.")


class StrictTools(MCPServer[Any]):
    """Refuses arguments that a tool does not have: a filter that is not applied finds what it should not."""

    async def list_tools(self) -> list[Tool]:
        found = await super().list_tools()
        return [
            one.model_copy(update={"input_schema": one.input_schema | {"additionalProperties": False}})
            for one in found
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None
    ) -> CallToolResult | InputRequiredResult:
        for tool in await self.list_tools():
            known = tool.input_schema.get("properties", {})
            if tool.name == name and (others := arguments.keys() - known):
                # Imported here: only a refusal needs it.
                from penstock.service.requests import unknown_option

                raise ToolError(error_text(unknown_option(name, min(others), known)))
        return await super().call_tool(name, arguments, context)


def _make_mcp_server(toolbox_of: _ToolboxOf, *, submitted: Callable[[], None]) -> MCPServer[Any]:
    """Make the server. ``submitted`` is called after each request that queues work."""
    server = StrictTools("penstock", instructions=_INSTRUCTIONS, version=version("penstock"))
    _add_search_tools(server, toolbox_of)
    _add_document_tools(server, toolbox_of)
    _add_working_tools(server, toolbox_of, submitted)
    _add_resources(server, toolbox_of)
    return server


def run_stdio(assembly: Assembly, submitted: Callable[[], None]) -> None:
    """Serve one client on standard input and output until it closes them, or Ctrl-C.

    ``submitted``: as above.
    """
    toolbox = Toolbox(assembly)
    server = _make_mcp_server(lambda _: toolbox, submitted=submitted)
    submitted()
    with _input_ends_at_interrupt():
        try:
            server.run("stdio")
        except BaseExceptionGroup as errors:
            _raise_output_error(errors)
            raise


def _raise_output_error(errors: BaseExceptionGroup[BaseException]) -> None:
    """Raise the error of an output that cannot be written alone, if the group has no other."""
    failed, others = errors.split(OSError)
    if failed is None or others is not None:
        return
    error: BaseException = failed
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, BrokenPipeError):
        raise BrokenPipeError from None  # the client is gone
    raise OutputFailed(f"standard output cannot be written ({getattr(error, 'strerror', error)})") from None


def _confirmation(ctx: Context, job_id: str, confirm: bool) -> Confirmation | Elicit[Confirmation]:
    """Ask the person, where the client can; else the argument decides."""
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.elicitation is None:
        return Confirmation(confirm=confirm)
    return Elicit(f"Cancel job {job_id}?", Confirmation)


def _add_search_tools(server: MCPServer[Any], toolbox_of: _ToolboxOf) -> None:
    @server.tool(annotations=READ, structured_output=False)
    async def search(
        ctx: Context,
        query: Query,
        limit: Annotated[int, Field(description="Number of hits, 1 to 50.")] = 8,
        collection: Collection = None,
        path: Annotated[str | None, Field(description="Only paths that match this glob or folder.")] = None,
        mode: Annotated[
            Literal["hybrid", "keyword", "vector"], Field(description="By words, by meaning, or by both.")
        ] = "hybrid",
        library: Annotated[
            str | None, Field(description="Only this library, as NAME or NAME==VERSION.")
        ] = None,
        project: Project = None,
        all: All = False,
    ) -> str:
        """Find passages in indexed files and notes. Returns paths with line numbers and snippets."""
        return await _call(
            toolbox_of(ctx).search, query, limit, collection, path, mode, library, project, all
        )

    @server.tool(annotations=READ, structured_output=False)
    async def context(
        ctx: Context,
        query: Query,
        max_tokens: Annotated[int, Field(description="Most tokens of all passages, 1 to 50,000.")] = 2_000,
        project: Project = None,
        all: All = False,
    ) -> str:
        """Collect the best passages for a question within a budget of tokens, numbered for citation."""
        return await _call(toolbox_of(ctx).context, query, max_tokens, project, all)

    @server.tool(annotations=READ, structured_output=False)
    async def graph_neighbours(
        ctx: Context,
        name: Annotated[str, Field(description="Name of an entity: a person, place, class or function.")],
        hops: Annotated[int, Field(description="Relations between the name and its neighbours, 1 to 4.")] = 1,
    ) -> str:
        """List entities related to a name, with the relations. Needs documents indexed with a graph."""
        return await _call(toolbox_of(ctx).graph_neighbours, name, hops)


def _add_document_tools(server: MCPServer[Any], toolbox_of: _ToolboxOf) -> None:
    @server.tool(annotations=READ, structured_output=False)
    async def list_documents(
        ctx: Context,
        path: Annotated[str | None, Field(description="Only paths that match this glob or folder.")] = None,
        limit: Annotated[int, Field(description="Number of documents, 1 to 200.")] = 50,
        project: Project = None,
    ) -> str:
        """List indexed documents with their status."""
        return await _call(toolbox_of(ctx).list_documents, path, limit, project)

    @server.tool(annotations=READ, structured_output=False)
    async def read_document(
        ctx: Context,
        path_or_id: Annotated[str, Field(description="Path or id of a document.")],
        page: Annotated[int, Field(description="Page, slide or sheet, from 1.", ge=1)] = 1,
    ) -> str:
        """Read the text of one page of a document, as it was indexed."""
        return await _call(toolbox_of(ctx).read_document, path_or_id, page)

    @server.tool(annotations=READ, structured_output=False)
    async def why(
        ctx: Context,
        path: Annotated[str, Field(description="Path of a file or folder.")],
        project: Project = None,
        all: All = False,
    ) -> str:
        """Explain why search does, or does not, find a file, and what to do."""
        return await _call(toolbox_of(ctx).why, path, project, all)

    @server.tool(annotations=READ, structured_output=False)
    async def job_status(ctx: Context, job_id: _JobId) -> str:
        """Show status, progress, and reason or error of a job."""
        return job_text(await _call(toolbox_of(ctx).job, job_id))


def _add_working_tools(server: MCPServer[Any], toolbox_of: _ToolboxOf, submitted: Callable[[], None]) -> None:
    @server.tool(annotations=ADD, structured_output=False)
    async def add_note(
        ctx: Context,
        text: Annotated[str, Field(description="The text to remember.")],
        tags: Annotated[list[str] | None, Field(description="Tags, such as plans/mill.")] = None,
        collection: Annotated[str | None, Field(description="Collection of the note.")] = None,
    ) -> str:
        """Add a note to the index. Equal texts are one note."""
        receipt = await _call(toolbox_of(ctx).add_note, text, tags, collection)
        await _call(submitted)
        return _receipt_text(receipt)

    @server.tool(annotations=ADD, structured_output=False)
    async def index_path(
        ctx: Context,
        path: Annotated[str, Field(description="File or folder to index.")],
        wait: Annotated[bool, Field(description="Wait for the end, with progress.")] = False,
        include_code: Annotated[bool | None, Field(description="Index source code too.")] = None,
        collection: Annotated[str | None, Field(description="Collection of the documents.")] = None,
        project: Annotated[
            bool | None, Field(description="Index as a project, or not. Default: in a git work tree.")
        ] = None,
    ) -> str:
        """Index a file or folder; unchanged files are not read again. Returns a job."""
        toolbox = toolbox_of(ctx)
        receipt = await _call(toolbox.index_path, path, include_code, collection, project)
        await _call(submitted)
        if not wait:
            return _receipt_text(receipt)
        return job_text(await _wait(toolbox, receipt.job_id, _MOST_WAIT_S, ctx, submitted))

    @server.tool(annotations=READ, structured_output=False)
    async def wait_for_job(
        ctx: Context,
        job_id: _JobId,
        timeout_s: Annotated[
            float, Field(description="Longest wait in seconds.", gt=0, le=_MOST_WAIT_S)
        ] = 60,
    ) -> str:
        """Wait until a job has ended, with progress. After the timeout the job goes on, and can be waited for
        again."""
        return job_text(await _wait(toolbox_of(ctx), job_id, timeout_s, ctx, submitted))

    @server.tool(annotations=_CANCEL, structured_output=False)
    async def cancel_job(
        ctx: Context,
        job_id: _JobId,
        answer: Annotated[ElicitationResult[Confirmation], Resolve(_confirmation)],
        confirm: Annotated[  # noqa: ARG001 - read by _confirmation
            bool, Field(description="True: the person has agreed. Not needed where the client asks.")
        ] = False,
    ) -> str:
        """Cancel a job. Asks the person first where the client can; otherwise it needs confirm."""
        if not (isinstance(answer, AcceptedElicitation) and answer.data.confirm):
            raise ToolError(error_text(NotConfirmed(f"job {job_id[:80]} was not cancelled")))
        return await _call(toolbox_of(ctx).cancel_job, job_id)

    @server.tool(annotations=ADD, structured_output=False)
    async def retry_job(ctx: Context, job_id: _JobId) -> str:
        """Queue a failed or cancelled job again."""
        text = await _call(toolbox_of(ctx).retry_job, job_id)
        await _call(submitted)
        return text


def _add_resources(server: MCPServer[Any], toolbox_of: _ToolboxOf) -> None:
    @server.resource("job://{job_id}", mime_type="application/json", title="Job")
    async def job(ctx: Context, job_id: str) -> str:
        """A job with progress, error and result."""
        return await _read(toolbox_of(ctx).job_resource, job_id)

    @server.resource("document://{source_id}", mime_type="application/json", title="Document")
    async def document(ctx: Context, source_id: str) -> str:
        """A document with its versions and the state of its pages."""
        return await _read(toolbox_of(ctx).document_resource, source_id)

    @server.resource("chunk://{chunk_id}", mime_type="text/plain", title="Chunk")
    async def chunk(ctx: Context, chunk_id: str) -> str:
        """The text of a search hit."""
        return await _read(toolbox_of(ctx).chunk_resource, chunk_id)


async def _wait(
    toolbox: Toolbox, job_id: str, timeout_s: float, ctx: Context, submitted: Callable[[], None]
) -> JobDetail:
    """The job at its end, or after the timeout; each change of its progress is reported.

    ``submitted`` is called time and again: the worker of this server may have crashed.
    """
    started, reported, looks = clock.elapsed_s(), -1.0, 0
    while True:
        if looks % _CHECKED_EVERY == 0:
            await _call(submitted)
        looks += 1
        job = await _call(toolbox.job, job_id)
        ended = job.finished_at is not None
        progress = job.progress
        done = float(progress.files_total if ended else progress.files_processed or 0)
        if done > reported:
            # The protocol asks for a value that grows with each report.
            reported = done
            await ctx.report_progress(done, progress.files_total or None, progress.current_file or job.status)
        if ended or clock.elapsed_s() >= started + timeout_s:
            return job
        await anyio.sleep(LOOK_S)


async def _call(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a service in a thread; a refusal becomes the SDK's error, with code and remedy."""
    try:
        return await anyio.to_thread.run_sync(lambda: function(*args, **options), abandon_on_cancel=True)
    except PenstockError as error:
        raise ToolError(error_text(error)) from error


async def _read(function: Callable[[str], str], given: str) -> str:
    try:
        return await anyio.to_thread.run_sync(function, given, abandon_on_cancel=True)
    except (JobNotFound, UnknownDocument) as error:
        raise ResourceNotFoundError(error_text(error)) from error
    except PenstockError as error:
        raise ResourceError(error_text(error)) from error


_PRINCIPAL = "penstock.principal"
"""Key of the request's sender in its scope."""
_MOST_SESSIONS, MOST_PER_KEY = 1_000, 100
"""Sessions of agents at the same time. For one more, the one ends that is unused for the longest time: of its
key, or of the key with the most sessions. Its agent is told so, and begins another one."""
_SESSION = b"mcp-session-id"


class McpEndpoint:
    """Serves every sender with the tools that its key allows; paths are those of the server's policy.

    The caller has checked key, host, origin and size of each request, and put the sender into its scope.
    """

    def __init__(self, assembly: Assembly, policy: PathPolicy) -> None:
        self._assembly = assembly
        self._policy = policy
        self._starting = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._running: asyncio.Task[None] | None = None
        self._owners: dict[bytes, str] = {}
        """The name of the key by session. The one used last is the last."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        async with self._starting:
            if self._manager is None:
                self._manager = await self._start()
        owner = scope[_PRINCIPAL].name
        named = _session(scope["headers"])

        async def note(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                await self._note(named, owner, message, ends=scope["method"] == "DELETE")
            await send(message)

        await self._manager.handle_request({**scope, "user": _user(owner)}, receive, note)

    async def _note(
        self, named: bytes | None, owner: str, answer: MutableMapping[str, Any], *, ends: bool
    ) -> None:
        """Note the use, the begin or the end of a session, and end another one if there are too many."""
        if named is not None:
            if self._owners.get(named) == owner:
                del self._owners[named]
                if not ends and answer["status"] != 404:
                    self._owners[named] = owner
            return
        begun = _session(answer["headers"]) if answer["status"] < 400 else None
        if begun is None:
            return
        self._owners[begun] = owner
        counts = Counter(self._owners.values())
        if counts[owner] > MOST_PER_KEY:
            await self._end_oldest(owner)
        elif len(self._owners) > _MOST_SESSIONS:
            await self._end_oldest(counts.most_common(1)[0][0])

    async def _end_oldest(self, owner: str) -> None:
        """End the session of a key that is unused for the longest time, as its agent would."""
        assert self._manager is not None
        oldest = next(session for session, name in self._owners.items() if name == owner)
        del self._owners[oldest]
        scope = {
            "type": "http",
            "method": "DELETE",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(_SESSION, oldest)],
            "user": _user(owner),
        }

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def drop(_: MutableMapping[str, Any]) -> None: ...

        await self._manager.handle_request(scope, receive, drop)

    async def _start(self) -> StreamableHTTPSessionManager:
        manager = await asyncio.to_thread(self._make_manager)
        ready = asyncio.Event()

        async def run() -> None:
            # The manager's tasks belong to the task that started it, and end with the event loop.
            async with manager.run():
                ready.set()
                await asyncio.Event().wait()

        self._running = asyncio.create_task(run())
        await ready.wait()
        return manager

    def _make_manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.transport_security import TransportSecuritySettings

        server = _make_mcp_server(self._toolbox, submitted=lambda: None)
        server.streamable_http_app(
            # More than are kept: one that begins is counted when it is answered.
            max_sessions=2 * _MOST_SESSIONS,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        return server.session_manager

    def _toolbox(self, context: Any) -> Toolbox:
        principal = context.request_context.request.scope[_PRINCIPAL]
        return Toolbox(self._assembly, policy=self._policy.of_key(principal), principal=principal)


def _session(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The id of the session that headers name."""
    return next((value for name, value in headers if name.lower() == _SESSION), None)


def _user(owner: str) -> object:
    """The owner of a session as the SDK knows it: to another one, the session does not exist."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=owner, scopes=[]))


def mcp_endpoint(assembly: Assembly, policy: PathPolicy) -> McpEndpoint | None:
    """The application for agents; None where the extra is not installed."""
    return McpEndpoint(assembly, policy) if is_installed("mcp") else None
