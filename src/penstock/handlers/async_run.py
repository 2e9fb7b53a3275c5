"""Async functions in the event loop of a worker: one loop for each thread, kept between jobs.

A loop that lives as long as the worker lets functions keep clients and connection pools open between calls.
A cancel of the job reaches the function as ``asyncio.CancelledError``, at its next ``await``.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from penstock.errors import Cancelled
from penstock.handlers.context import Context

_POLL_S = 0.1
"""Time between two looks at the cancel flag while a function awaits."""


class _Loop:
    """The loop of one thread, closed with the thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.runner = asyncio.Runner()

    def abandon(self) -> None:
        """Cancel the tasks left, and close the loop. A ``SystemExit`` kept in a task is not raised again."""
        with suppress(Exception, SystemExit, KeyboardInterrupt):
            self.runner.close()

    def __del__(self) -> None:
        # Not in a forked process: the loop's file descriptors are shared with the parent. At the end of the
        # interpreter only the loop itself: the runner starts a thread to close an executor, and no thread
        # starts then.
        if self.pid == os.getpid():
            if sys.is_finalizing():
                with suppress(RuntimeError):  # it was closed before, or runs
                    self.runner.get_loop().close()
            else:
                self.runner.close()


class _Loops(threading.local):
    loop: _Loop | None = None


_loops = _Loops()


def run(coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
    """Run a coroutine to its end in this thread's loop. Raises ``Cancelled`` if the job is cancelled."""
    # No variable here holds the loop: an error keeps this frame, and would keep the loop after its thread.
    try:
        return _own_loop().runner.run(_watched(coroutine, context), context=contextvars.copy_context())
    finally:
        _leave_stopped_loop()


def _own_loop() -> _Loop:
    loop = _loops.loop
    if loop is None or loop.pid != os.getpid():
        loop = _loops.loop = _Loop()
    return loop


def _leave_stopped_loop() -> None:
    """Give the next job a new loop, if the function stopped this one, for example by ``sys.exit()``."""
    loop = _own_loop()
    if asyncio.all_tasks(loop.runner.get_loop()):
        _loops.loop = None
        loop.abandon()


async def _watched(coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
    task = asyncio.create_task(coroutine)
    cancelled: Cancelled | None = None
    try:
        while not (await asyncio.wait({task}, timeout=_POLL_S))[0]:
            try:
                context.checkpoint()
            except Cancelled as error:
                cancelled = error
                task.cancel()
        return task.result()
    except asyncio.CancelledError:
        if cancelled is not None and task.cancelled():
            raise cancelled from None
        raise
    finally:
        await _end_others(task)


async def _end_others(task: asyncio.Task[Any]) -> None:
    """Cancel the tasks left running by the function: they must not run into the next job."""
    others = asyncio.all_tasks() - {asyncio.current_task(), task}
    if not task.done():
        task.cancel()
        others |= {task}
    for other in others:
        if other is not None:
            other.cancel()
    if others:
        await asyncio.gather(*(other for other in others if other is not None), return_exceptions=True)
