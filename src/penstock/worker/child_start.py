"""Start of a child process: opens the queue, the handlers and the catalog, and runs the child."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from penstock.errors import PenstockError
from penstock.handlers.context import Registry
from penstock.interpreter import WithoutCollections
from penstock.queue.protocol import Queue
from penstock.worker.child import Child
from penstock.worker.child_options import ChildOptions
from penstock.worker.lanes import DocumentTools
from penstock.worker.log_text import error_text
from penstock.worker.process_guard import ProcessGuard, end_process, open_state

log = logging.getLogger("penstock.worker")


def main(
    options: ChildOptions,
    open_queue: Callable[[], Queue],
    registry: Callable[[], Registry],
    open_documents: Callable[[Registry], DocumentTools] | None = None,
) -> None:
    """Run a child process from start to exit. Queue, handlers and catalog are opened here."""
    state = open_state(options.state_path)
    code = 1
    try:
        guard = ProcessGuard(state, options.parent_pid)
        guard.set_up()
        with WithoutCollections():
            handlers = registry()
            documents = open_documents(handlers) if open_documents is not None else None
            child = Child(open_queue(), handlers, guard, state, options, documents)
        child.run()
        code = 0
    except BaseException as error:  # the supervisor reports it
        state.write_message(msgspec.json.encode({"died": error_text(error)}).decode())
        state.set_leaving(time.monotonic())
        if isinstance(error, PenstockError):
            log.warning("a worker process ends: %s", error)
        else:
            log.exception("a worker process ends")
    finally:
        end_process(state, code)
