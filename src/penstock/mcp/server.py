"""Tools and resources bound to the MCP SDK: descriptions of arguments, progress, confirmation, errors."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar

import anyio
import anyio.to_thread
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
from penstock.errors import JobNotFound, NotConfirmed, OutputFailed, PenstockError, UnknownDocument
from penstock.mcp import texts
from penstock.mcp.interrupt import input_ends_at_interrupt
from penstock.mcp.toolbox import Toolbox
from penstock.service.job_views import JobDetail

if TYPE_CHECKING:
    from penstock.assembly import Assembly

P = ParamSpec("P")
T = TypeVar("T")

LOOK_S = 0.25
"""Time between two looks at a job that is waited for."""
CHECKED_EVERY = 8
"""Looks between two checks that a worker runs."""
MOST_WAIT_S = 600.0

INSTRUCTIONS = (
    "Penstock indexes files, folders and notes and searches them. Search first; cite paths and lines as "
    "given. What is missing may not be indexed: `why` explains a path, `index_path` adds it. "
    "Work runs as jobs: `wait_for_job` follows one to its end."
)

ToolboxOf = Callable[[Any], Toolbox]
"""The toolbox for the sender of a request, given the context of the call."""

JobId = Annotated[str, Field(description="Id of a job, as index_path and add_note return it.")]
Query = Annotated[str, Field(description='What to find, in plain words; "quoted words" are required.')]
Collection = Annotated[str | None, Field(description="Collection of documents. Default: all of them.")]
Project = Annotated[
    str | None, Field(description="Name of a project. Default: the one of the folder of the server.")
]
All = Annotated[bool, Field(description="Every project, and all documents outside of them.")]
READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADD = ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=False)
CANCEL = ToolAnnotations(destructive_hint=True, open_world_hint=False)


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
                from penstock.service.options import unknown_option

                raise ToolError(texts.error_text(unknown_option(name, min(others), known)))
        return await super().call_tool(name, arguments, context)


def make_mcp_server(toolbox_of: ToolboxOf, *, submitted: Callable[[], None]) -> MCPServer[Any]:
    """Make the server. ``submitted`` is called after each request that queues work."""
    server = StrictTools("penstock", instructions=INSTRUCTIONS, version=version("penstock"))
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
    server = make_mcp_server(lambda _: toolbox, submitted=submitted)
    submitted()
    with input_ends_at_interrupt():
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


def _add_search_tools(server: MCPServer[Any], toolbox_of: ToolboxOf) -> None:
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


def _add_document_tools(server: MCPServer[Any], toolbox_of: ToolboxOf) -> None:
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
    async def job_status(ctx: Context, job_id: JobId) -> str:
        """Show status, progress, and reason or error of a job."""
        return texts.job_text(await _call(toolbox_of(ctx).job, job_id))


def _add_working_tools(server: MCPServer[Any], toolbox_of: ToolboxOf, submitted: Callable[[], None]) -> None:
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
        return texts.receipt_text(receipt)

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
            return texts.receipt_text(receipt)
        return texts.job_text(await _wait(toolbox, receipt.job_id, MOST_WAIT_S, ctx, submitted))

    @server.tool(annotations=READ, structured_output=False)
    async def wait_for_job(
        ctx: Context,
        job_id: JobId,
        timeout_s: Annotated[float, Field(description="Longest wait in seconds.", gt=0, le=MOST_WAIT_S)] = 60,
    ) -> str:
        """Wait until a job has ended, with progress. After the timeout the job goes on, and can be waited for
        again."""
        return texts.job_text(await _wait(toolbox_of(ctx), job_id, timeout_s, ctx, submitted))

    @server.tool(annotations=CANCEL, structured_output=False)
    async def cancel_job(
        ctx: Context,
        job_id: JobId,
        answer: Annotated[ElicitationResult[Confirmation], Resolve(_confirmation)],
        confirm: Annotated[  # noqa: ARG001 - read by _confirmation
            bool, Field(description="True: the person has agreed. Not needed where the client asks.")
        ] = False,
    ) -> str:
        """Cancel a job. Asks the person first where the client can; otherwise it needs confirm."""
        if not (isinstance(answer, AcceptedElicitation) and answer.data.confirm):
            raise ToolError(texts.error_text(NotConfirmed(f"job {job_id[:80]} was not cancelled")))
        return await _call(toolbox_of(ctx).cancel_job, job_id)

    @server.tool(annotations=ADD, structured_output=False)
    async def retry_job(ctx: Context, job_id: JobId) -> str:
        """Queue a failed or cancelled job again."""
        text = await _call(toolbox_of(ctx).retry_job, job_id)
        await _call(submitted)
        return text


def _add_resources(server: MCPServer[Any], toolbox_of: ToolboxOf) -> None:
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
        if looks % CHECKED_EVERY == 0:
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
        raise ToolError(texts.error_text(error)) from error


async def _read(function: Callable[[str], str], given: str) -> str:
    try:
        return await anyio.to_thread.run_sync(function, given, abandon_on_cancel=True)
    except (JobNotFound, UnknownDocument) as error:
        raise ResourceNotFoundError(texts.error_text(error)) from error
    except PenstockError as error:
        raise ResourceError(texts.error_text(error)) from error
