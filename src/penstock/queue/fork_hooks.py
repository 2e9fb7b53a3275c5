"""Telling objects that their process has become another one.

A child of ``fork`` inherits locks that threads it does not have may hold, and descriptors whose file locks
and events it shares with its parent. The hook runs before anything else in the child; looking at the process
number on each call instead would let two threads of the child find out at once.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkAware(Protocol):
    def after_fork(self) -> None:
        """Called in the child, which has one thread then: let go of what belongs to the parent."""


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def register(item: ForkAware) -> None:
    _registered.add(item)


def _run_hooks() -> None:
    for item in list(_registered):
        item.after_fork()


os.register_at_fork(after_in_child=_run_hooks)
