"""A worker process that runs while there is work, for a server that belongs to one client."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.worker.pool import SafeProcess

if TYPE_CHECKING:
    from penstock.queue.protocol import Queue

log = logging.getLogger("penstock.worker")

PAUSE_S = 1.0
"""Least time between two starts of a worker."""


class OnDemandWorker:
    """Starts a worker when there are jobs and no other worker serves the queue.

    The worker stays for a while without work, since each start costs processes and a model. It ends with the
    process that started it, also if that is killed. ``run`` is called in the new process, and has to return
    after a stop signal, or when it has been idle for long.
    """

    def __init__(self, queue: Queue, is_served: Callable[[], bool], run: Callable[[], None]) -> None:
        self._queue = queue
        self._is_served = is_served
        self._run = run
        self._lock = threading.Lock()
        self._process: SafeProcess | None = None
        self._closed = threading.Event()
        self._calls = 0

    def ensure(self) -> None:
        """Start the worker, unless one runs or there is nothing to do."""
        with self._lock:
            self._calls += 1
            alive = self._process is not None and self._process.is_alive()
            if alive or self._closed.is_set() or not self._queue.busy() or self._is_served():
                return
            self._process = SafeProcess(target=_work, args=(self._run,))
            self._process.start()
            follow = threading.Thread(target=self._follow, args=(self._process, self._calls), daemon=True)
            follow.start()

    def _follow(self, process: SafeProcess, calls: int) -> None:
        """Start another worker if jobs may have come while this one was ending."""
        process.join()
        if self._calls != calls and not self._closed.wait(PAUSE_S):
            try:
                self.ensure()
            except PenstockError as error:
                # The next call of a client tries again.
                log.warning("no worker was started: %s. %s", error, error.remedy)

    def close(self) -> None:
        """Stop the worker; its jobs finish within its grace, or wait for another worker."""
        self._closed.set()
        with self._lock:
            if self._process is not None and self._process.is_alive():
                self._process.terminate()
                self._process.join()


def _work(run: Callable[[], None]) -> None:
    # Standard input and output may belong to a protocol between the server and its client.
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
