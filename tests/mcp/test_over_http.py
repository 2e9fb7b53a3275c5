"""The MCP route of ``penstock serve``: the same tools, bound by the server's path policy and keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio.from_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from penstock.mcp.server import MOST_PER_KEY
from tests.http.conftest import server as server
from tests.http.live_server import Answer, LiveServer
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


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "mill", "version": "1"},
    },
}


def asked(server: LiveServer, key: str, session: str | None = None, method: str = "ping") -> Answer:
    """The answer to a message of an agent; without a session it begins one."""
    headers = {"Accept": "application/json, text/event-stream"}
    headers |= {} if session is None else {"Mcp-Session-Id": session}
    body = INITIALIZE if session is None else {"jsonrpc": "2.0", "id": 2, "method": method}
    return server.raw("POST", "/mcp", body, key=key, headers=headers)


def begun(server: LiveServer, key: str) -> str:
    answer = asked(server, key)
    assert 200 == answer.status, answer.body
    return answer.headers["mcp-session-id"]


def test_a_key_with_many_sessions_ends_its_own_oldest_ones_only(server: LiveServer):
    many, one = server.make_key("many-sessions", "read"), server.make_key("one-session", "read", "other")
    kept = begun(server, one)
    sessions = [begun(server, many) for _ in range(MOST_PER_KEY)]
    assert 200 == asked(server, many, sessions[0]).status

    # The first one was used after the second one.
    begun(server, many)

    assert [200, 404, 200] == [asked(server, many, session).status for session in sessions[:3]]
    assert 200 == asked(server, one, kept).status


def test_a_session_of_another_key_does_not_exist(server: LiveServer):
    own, other = server.make_key("session-owner", "read"), server.make_key("session-thief", "admin")
    session = begun(server, own)

    assert 404 == asked(server, other, session).status
    ended = server.raw("DELETE", "/mcp", key=other, headers={"Mcp-Session-Id": session})
    assert 404 == ended.status
    assert 200 == asked(server, own, session).status
