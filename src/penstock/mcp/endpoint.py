"""MCP over HTTP: an ASGI application for one route of a server. The SDK is loaded at the first request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from penstock.extras import is_installed
from penstock.mcp.toolbox import Toolbox
from penstock.service.access import PathPolicy

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from penstock.assembly import Assembly

PRINCIPAL = "penstock.principal"
"""Key of the request's sender in its scope."""
MOST_SESSIONS, MOST_PER_KEY = 1_000, 100
"""Sessions of agents at the same time. For one more, the one ends that is unused for the longest time: of its
key, or of the key with the most sessions. Its agent is told so, and begins another one."""
SESSION = b"mcp-session-id"


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
        owner = scope[PRINCIPAL].name
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
        elif len(self._owners) > MOST_SESSIONS:
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
            "headers": [(SESSION, oldest)],
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

        from penstock.mcp.server import make_mcp_server

        server = make_mcp_server(self._toolbox, submitted=lambda: None)
        server.streamable_http_app(
            # More than are kept: one that begins is counted when it is answered.
            max_sessions=2 * MOST_SESSIONS,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        return server.session_manager

    def _toolbox(self, context: Any) -> Toolbox:
        principal = context.request_context.request.scope[PRINCIPAL]
        return Toolbox(self._assembly, policy=self._policy.of_key(principal), principal=principal)


def _session(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The id of the session that headers name."""
    return next((value for name, value in headers if name.lower() == SESSION), None)


def _user(owner: str) -> object:
    """The owner of a session as the SDK knows it: to another one, the session does not exist."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=owner, scopes=[]))


def mcp_endpoint(assembly: Assembly, policy: PathPolicy) -> McpEndpoint | None:
    """The application for agents; None where the extra is not installed."""
    return McpEndpoint(assembly, policy) if is_installed("mcp") else None
