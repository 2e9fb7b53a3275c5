"""Child processes whose interpreter does not look for modules in the working directory.

``multiprocessing`` starts a child as ``python -c``, which puts the working directory in front of the import
path until the child has received its parent's. The same holds for the process that tracks its resources.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, util
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

_lock = threading.Lock()


@contextmanager
def _safe_path_flag() -> Iterator[None]:
    """Give ``-P`` to whatever ``multiprocessing`` starts meanwhile.

    Not the variable PYTHONSAFEPATH: under ``-E`` it would be ignored, and what a job starts would inherit it.
    """
    name = "_args_from_interpreter_flags"
    with _lock:
        given = getattr(util, name)
        more = [] if sys.flags.safe_path else ["-P"]
        setattr(util, name, lambda: [*given(), *more])
        try:
            yield
        finally:
            setattr(util, name, given)


class SafeProcess(context.SpawnProcess):
    """A spawned process with a safe import path."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: N802 - its name in the library
        with _safe_path_flag():
            return context.SpawnProcess._Popen(process_obj)


class _SafeSpawn(context.SpawnContext):
    Process = SafeProcess


def start_context(method: str) -> BaseContext:
    """The ``multiprocessing`` context for ``spawn`` or ``fork``. A forked child keeps its parent's path."""
    return _SafeSpawn() if method == "spawn" else multiprocessing.get_context(method)
