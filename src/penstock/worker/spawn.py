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
from multiprocessing import context, spawn, util
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from penstock.interpreter import inherited_path

_lock = threading.Lock()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Give ``-P`` and the inherited path to whatever ``multiprocessing`` starts meanwhile.

    Not the variable PYTHONSAFEPATH: under ``-E`` it would be ignored, and what a job starts would inherit it.
    """
    flags, data = "_args_from_interpreter_flags", "get_preparation_data"
    with _lock:
        given_flags, given_data = getattr(util, flags), getattr(spawn, data)
        more = [] if sys.flags.safe_path else ["-P"]
        setattr(util, flags, lambda: [*given_flags(), *more])
        setattr(spawn, data, lambda name: given_data(name) | {"sys_path": inherited_path()})
        try:
            yield
        finally:
            setattr(util, flags, given_flags)
            setattr(spawn, data, given_data)


class SafeProcess(context.SpawnProcess):
    """A spawned process with a safe import path."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: N802 - its name in the library
        with _safe_path():
            return context.SpawnProcess._Popen(process_obj)


class _SafeSpawn(context.SpawnContext):
    Process = SafeProcess


def start_context(method: str) -> BaseContext:
    """The ``multiprocessing`` context for ``spawn`` or ``fork``. A forked child keeps its parent's path."""
    return _SafeSpawn() if method == "spawn" else multiprocessing.get_context(method)
