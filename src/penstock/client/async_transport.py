"""Requests of ``AsyncClient`` over connections of its event loop."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from penstock import clock
from penstock.client import transport
from penstock.client.transport import (
    IDLE_S,
    INDEX_S,
    QUERY_S,
    RECEIVED,
    RETRY_FOR_S,
    Address,
    Caller,
    Link,
    Patience,
    Steps,
    tls_context,
)

if TYPE_CHECKING:
    from penstock.client.calls import ApiCall

T = TypeVar("T")


class _Streams(msgspec.Struct, frozen=True):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class AsyncTransport:
    """Connections to one server, kept for the next call, and the steps of a call over them."""

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
                close_all(taken)

    async def _perform(self, step: transport.Step, taken: set[Link]) -> Any:
        if isinstance(step, transport.Connect):
            async with asyncio.timeout(step.timeout_s):
                link = await self._connected(fresh=step.fresh)
            taken.add(link)
            return link
        if isinstance(step, transport.Send):
            async with asyncio.timeout(step.timeout_s):
                step.link.transport.writer.write(step.data)
                return await step.link.transport.writer.drain()
        if isinstance(step, transport.Receive):
            async with asyncio.timeout(step.timeout_s):
                return await step.link.transport.reader.read(RECEIVED)
        if isinstance(step, transport.Sleep):
            return await asyncio.sleep(step.seconds)
        taken.discard(step.link)
        if isinstance(step, transport.Release):
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
            streams: _Streams = link.transport
            if (
                clock.elapsed_s() - link.idle_since < IDLE_S
                and not streams.reader.at_eof()
                and not streams.writer.is_closing()
            ):
                link.reused = True
                return link
            streams.writer.close()
        address = self._caller.address
        name = address.host if self._tls is not None else None
        made = await asyncio.open_connection(address.host, address.port, ssl=self._tls, server_hostname=name)
        return Link(_Streams(*made))


def close_all(links: set[Link]) -> None:
    """Close connections, and empty the set."""
    while links:
        links.pop().transport.writer.close()
