"""Thread pools for handlers: writers waiting for a store, and page drawing, do not delay readers."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Literal, ParamSpec, TypeAlias, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from penstock.service.pages import DRAWN_AT_ONCE, DRAWN_PER_KEY

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

Pool: TypeAlias = Literal["read", "write", "sign", "draw"]
THREADS: dict[Pool, int] = {"read": 16, "write": 8, "sign": 1, "draw": DRAWN_AT_ONCE}
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


def signs(handler: Callable[Given, Answer]) -> Callable[Given, Awaitable[Answer]]:
    """Run a sign-in, which takes turns with all others in any case, and not in the threads of writers."""
    return _in_pool("sign", handler)


class Drawings:
    """The pages that are drawn at the same time, in one event loop. A key waits for its own ones first."""

    def __init__(self) -> None:
        self._limiters: dict[str, CapacityLimiter] = {}

    async def run(self, key: str | None, draw: Callable[[], Answer]) -> Answer:
        """Draw for a key in a thread of its own pool. None: there are no keys, and only the pool counts."""
        if key is None:
            return await to_thread.run_sync(draw, limiter=_limiter("draw"))
        limiter = self._limiters.setdefault(key, CapacityLimiter(DRAWN_PER_KEY))
        try:
            async with limiter:
                # In the line of the pool, a key has no more places than it may have drawn at once.
                return await to_thread.run_sync(draw, limiter=_limiter("draw"))
        finally:
            statistics = limiter.statistics()
            if not statistics.borrowed_tokens and not statistics.tasks_waiting:
                self._limiters.pop(key, None)
