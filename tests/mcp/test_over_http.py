"""The MCP route of ``penstock serve``: the same tools, bound by the server's path policy and keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio.from_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.http.conftest import server as server
from tests.http.live_server import LiveServer
from tests.mcp.conftest import Agent
from tests.mcp.test_tools import TOOLS, job_of

SERVE = ()


@contextmanager
def connected(server: LiveServer, key: str, mode: str = "auto") -> Iterator[Agent]:
    with ExitStack() as stack:
        portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
        requests = stack.enter_context(
            portal.wrap_async_context_manager(
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60)
            )
        )
        transport = streamable_http_client(f"{server.url}/mcp", http_client=requests)
        client = stack.enter_context(portal.wrap_async_context_manager(Client(transport, mode=mode)))
        yield Agent(portal, client, server.folder)


@pytest.fixture(scope="module")
def key(server: LiveServer) -> str:
    """A key without bounds: once there is a key, every request needs one."""
    return server.make_key("agent", "admin")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_indexes_with_progress_and_searches(server: LiveServer, key: str, mode: str):
    (server.folder / mode).mkdir()
    (server.folder / mode / "mill.md").write_text(f"The {mode} wheel turns.\n")
    with connected(server, key, mode) as agent:
        assert set(TOOLS) == {tool.name for tool in agent.run(agent.client.list_tools).tools}
        found = agent.call("index_path", path=mode, wait=True)
        assert "done" in found
        assert agent.progress
        assert f"{mode}/mill.md" in agent.call("search", query=f"{mode} wheel")
        assert '"priority":10' in agent.read(f"job://{job_of(found)}")


def test_paths_outside_the_roots_are_refused(server: LiveServer, key: str):
    with connected(server, key) as agent:
        assert "ERR_PATH_OUTSIDE" in agent.refusal("index_path", path="/etc")
        assert "ERR_PATH_OUTSIDE" in agent.refusal("why", path="/etc/passwd")


def test_keys_bind_an_agent_to_scope_and_tenant(server: LiveServer, key: str):
    (server.folder / "hidden.md").write_text("The hidden sluice.\n")
    with connected(server, key) as agent:
        job_id = job_of(agent.call("index_path", path="hidden.md", wait=True))
    reader = server.make_key("reader", "read", "other")

    with connected(server, reader) as agent:
        assert "hidden" not in agent.call("search", query="hidden sluice")
        assert "ERR_JOB_NOT_FOUND" in agent.refusal("job_status", job_id=job_id)
        assert "ERR_NOT_ALLOWED" in agent.refusal("add_note", text="No.")
        assert "No documents." == agent.call("list_documents")
    assert 401 == server.ask("POST", "/mcp", {}).status
