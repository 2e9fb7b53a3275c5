"""Zygotes of sandboxes that are used again by later tests of a process.

A zygote costs as much as ten small tests to start, as it loads the parsers. It reads no file and keeps
nothing of one: each sandbox still forks children of its own.
"""

from __future__ import annotations

import atexit
import os
import socket

import pytest

from penstock.interpreter import isolated_command, isolated_environment
from penstock.pipeline.extract.sandbox import process, sandbox
from penstock.pipeline.extract.sandbox.messages import Fork, Order

Key = tuple[int, int, tuple[str, ...], tuple[tuple[str, str], ...]]

_free: dict[Key, list[KeptZygote]] = {}


def _key(niceness: int) -> Key:
    """Identify the zygote that would be started now. That of a parent process is none of this one."""
    command = isolated_command(process.COMMAND)
    return os.getpid(), niceness, tuple(command), tuple(sorted(isolated_environment().items()))


class KeptZygote(process.Zygote):
    """A zygote that is given back when its sandbox closes it."""

    def __init__(self, niceness: int) -> None:
        super().__init__(niceness)
        self._key = _key(niceness)
        self._has_child = False

    def _answer(self, order: Order, *files: socket.socket) -> int:
        # An answer that did not arrive would be taken for that of the next order.
        self._has_child = True
        answer = super()._answer(order, *files)
        self._has_child = isinstance(order, Fork)
        return answer

    def close(self) -> None:
        if self._has_child or self._process.poll() is not None or self._key[0] != os.getpid():
            self.end()
        else:
            _free.setdefault(self._key, []).append(self)

    def end(self) -> None:
        super().close()


def _taken(niceness: int = 0) -> process.Zygote:
    free = _free.get(_key(niceness), [])
    while free:
        zygote = free.pop()
        if zygote._process.poll() is None:
            return zygote
        zygote.end()
    return KeptZygote(niceness)


def _end_all() -> None:
    for zygotes in _free.values():
        for zygote in zygotes:
            if zygote._key[0] == os.getpid():
                zygote.end()


atexit.register(_end_all)


@pytest.fixture(autouse=True)
def kept_zygotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is made of files. The tests of the sandbox start its processes."""
    monkeypatch.setattr(sandbox, "Zygote", _taken)
