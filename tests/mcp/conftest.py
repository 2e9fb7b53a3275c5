"""An MCP server process, and the SDK's own client on its standard input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

Confirm = Callable[[ElicitRequestParams], ElicitResult]


class Agent:
    """An agent that calls tools and reads resources, from a plain test function."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal, client: Client, folder: Path) -> None:
        self._portal = portal
        self.client = client
        self.folder = folder
        self.progress: list[tuple[float, float | None]] = []

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._portal.call(function, *arguments)

    def result(self, tool: str, **arguments: Any) -> CallToolResult:
        async def record(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append((progress, total))

        async def call() -> Any:
            return await self.client.call_tool(tool, arguments, progress_callback=record)

        found: CallToolResult = self.run(call)
        return found

    def call(self, tool: str, **arguments: Any) -> str:
        """The text of a tool's answer, which must not be an error."""
        found = self.result(tool, **arguments)
        assert not found.is_error, found.content
        return _text(found)

    def refusal(self, tool: str, **arguments: Any) -> str:
        found = self.result(tool, **arguments)
        assert found.is_error, found.content
        return _text(found)

    def read(self, uri: str) -> str:
        found = self.run(self.client.read_resource, uri)
        text: str = found.contents[0].text
        return text


def _text(result: CallToolResult) -> str:
    (content,) = result.content
    text: str = content.text  # type: ignore[union-attr]
    return text


@contextmanager
def connected(
    folder: Path, *arguments: str, mode: str = "auto", confirm: Confirm | None = None
) -> Iterator[Agent]:
    """A server for ``folder`` and its client. ``confirm`` answers questions to the person."""

    async def ask(context: Any, params: ElicitRequestParams) -> ElicitResult:
        assert confirm is not None
        return confirm(params)

    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = ["-m", "penstock", "--state", str(folder / "state"), "mcp", *arguments]
    started = StdioServerParameters(
        command=sys.executable,
        args=command,
        cwd=folder,
        env=kept | {"PENSTOCK_EMBEDDER": "hashing", "PENSTOCK_POLL_S": "0.05"},
    )
    client = Client(started, mode=mode, elicitation_callback=ask if confirm else None)
    with ExitStack() as stack:
        portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
        stack.enter_context(portal.wrap_async_context_manager(client))
        yield Agent(portal, client, folder)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent whose server has indexed a folder of two files."""
    folder = tmp_path_factory.mktemp("agent")
    files = folder / "files"
    files.mkdir()
    (files / "mill.md").write_text("# The mill\n\nThe wheel turns below the weir.\n")
    (files / "barn.md").write_text("# The barn\n\nHay is kept dry.\n")
    with connected(folder) as found:
        assert "done" in found.call("index_path", path="files", wait=True)
        yield found
