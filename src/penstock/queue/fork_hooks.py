"""Hooks in the child after ``fork``.

A child inherits locks held by threads that it does not have, and descriptors whose file locks and events it
shares with its parent. The hook runs before anything else in the child. Comparing the process id on each call
instead would let two threads of the child notice at once.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """An object with resources of one process."""

    def after_fork(self) -> None:
        """Drop the resources of the parent. Called in the child, which has one thread then."""


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def register(item: ForkAware) -> None:
    _registered.add(item)


def _run_hooks() -> None:
    for item in list(_registered):
        item.after_fork()


os.register_at_fork(after_in_child=_run_hooks)
