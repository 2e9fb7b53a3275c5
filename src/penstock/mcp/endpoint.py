"""MCP over HTTP: an ASGI application for one route of a server. The SDK is loaded at the first request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from penstock.extras import is_installed
from penstock.mcp.toolbox import Toolbox
from penstock.service.path_policy import PathPolicy

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from penstock.assembly import Assembly

PRINCIPAL = "penstock.principal"
"""Key of the request's sender in its scope."""
MOST_SESSIONS = 1_000


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

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        async with self._starting:
            if self._manager is None:
                self._manager = await self._start()
        await self._manager.handle_request(scope, receive, send)

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
            max_sessions=MOST_SESSIONS,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        return server.session_manager

    def _toolbox(self, context: Any) -> Toolbox:
        principal = context.request_context.request.scope[PRINCIPAL]
        return Toolbox(self._assembly, policy=self._policy.of_key(principal), principal=principal)


def mcp_endpoint(assembly: Assembly, policy: PathPolicy) -> McpEndpoint | None:
    """The application for agents; None where the extra is not installed."""
    return McpEndpoint(assembly, policy) if is_installed("mcp") else None
