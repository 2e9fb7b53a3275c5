"""Thread pools for handlers: writers waiting for a store, and page drawing, do not delay readers."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Literal, ParamSpec, TypeAlias, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

Pool: TypeAlias = Literal["read", "write", "draw"]
THREADS: dict[Pool, int] = {"read": 16, "write": 8, "draw": 2}
_limiters: RunVar[dict[str, CapacityLimiter]] = RunVar("penstock_limiters")


def _limiter(pool: Pool) -> CapacityLimiter:
    """The limit of a pool, one for each event loop."""
    try:
        return _limiters.get()[pool]
    except LookupError:
        _limiters.set({name: CapacityLimiter(number) for name, number in THREADS.items()})
        return _limiters.get()[pool]


def _in_pool(pool: Pool, handler: Callable[Given, Answer]) -> Callable[Given, Awaitable[Answer]]:
    @functools.wraps(handler)
    async def run(*given: Given.args, **named: Given.kwargs) -> Answer:
        call = functools.partial(handler, *given, **named)
        return await to_thread.run_sync(call, limiter=_limiter(pool))

    return run


def reads(handler: Callable[Given, Answer]) -> Callable[Given, Awaitable[Answer]]:
    """Run a read-only handler in a thread."""
    return _in_pool("read", handler)


def writes(handler: Callable[Given, Answer]) -> Callable[Given, Awaitable[Answer]]:
    """Run a writing handler in a separate thread pool."""
    return _in_pool("write", handler)


def draws(handler: Callable[Given, Answer]) -> Callable[Given, Awaitable[Answer]]:
    """Run a handler with seconds of computing in a separate thread pool."""
    return _in_pool("draw", handler)
