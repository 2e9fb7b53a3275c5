"""Schemas as numbered scripts, and what connections of both stores need: fair turns, and hooks of fork."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Protocol

import msgspec

from penstock.errors import RestoreUnfinished, SchemaMismatch

RESTORING = 2_000_000_000
"""Number in the table of applied scripts while a store is restored: no version opens such a store."""

_CREATE = (
    r"^CREATE (?:UNIQUE |VIRTUAL |OR REPLACE )?"
    r"(TABLE|VIEW|INDEX|TYPE|SEQUENCE|FUNCTION|TRIGGER|TEXT SEARCH DICTIONARY|TEXT SEARCH CONFIGURATION)"
    r" (?:IF NOT EXISTS )?(\w+)"
)
_DROP = r"^DROP \w+ (?:IF EXISTS )?(\w+)"


class Schema(msgspec.Struct, frozen=True):
    """Numbered scripts, oldest first, and the table of applied scripts.

    ``probe``: a statement of PostgreSQL that fails on foreign tables of the same names. ``restoring``: the
    program restores the store, and opens one whose restore was not finished.
    """

    ledger: str
    scripts: list[tuple[int, str]]
    probe: str = ""
    restoring: bool = False

    @property
    def newest(self) -> int:
        return self.scripts[-1][0]

    def after(self, applied: int) -> list[tuple[int, str]]:
        return [(number, script) for number, script in self.scripts if number > applied]

    def created_names(self, applied: int = 0) -> list[str]:
        """List names in order of creation by the scripts after ``applied``.

        Left out are triggers, which are unique only per table, and dropped objects.
        """
        return list(_created(self.after(applied)))

    def tables(self) -> list[str]:
        """List the tables in order of creation: referenced tables come first."""
        return [name for name, kind in _created(self.scripts).items() if kind == "TABLE"]

    @property
    def applied_statement(self) -> str:
        """Statement to read the number of the last applied script."""
        finished = f" WHERE number < {RESTORING}" if self.restoring else ""
        return f"SELECT coalesce(max(number), 0) FROM {self.ledger}{finished}"

    def refuse_newer(self, store: object, applied: int) -> None:
        """Raise ``SchemaMismatch`` for a store that a later version has migrated."""
        if applied == RESTORING:
            raise RestoreUnfinished(f"{store} was being restored, and the restore did not finish")
        if applied > self.newest:
            raise SchemaMismatch(f"{store} has schema {applied}, this version knows up to {self.newest}")

    def refuse_older(self, store: object, applied: int, *, remedy: str) -> None:
        """Raise ``SchemaMismatch`` for a store that this version has not migrated yet."""
        if applied < self.newest:
            raise SchemaMismatch(
                f"{store} has schema {applied}, this version needs {self.newest}", remedy=remedy
            )

    def lacks(self, store: object, name: str, *, remedy: str) -> SchemaMismatch:
        """The error for a store without an object of the schema."""
        return SchemaMismatch(
            f"{store} lacks {name}, which is in schema {self.newest}: applied in part, or changed",
            remedy=remedy,
        )


def _created(scripts: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Names with their kinds, of all that the scripts create and none of them drops; without triggers."""
    names: dict[str, str] = {}
    for _, script in scripts:
        for name in re.findall(_DROP, script, re.MULTILINE):
            names.pop(name, None)
        created = re.findall(_CREATE, script, re.MULTILINE)
        names |= {name: kind for kind, name in created if kind != "TRIGGER"}
    return names


class FairSemaphore:
    """A semaphore that threads get in the order of their arrival.

    ``threading.Semaphore`` lets a thread that releases acquire again before the one it woke: under steady use
    some threads never get their turn.
    """

    def __init__(self, value: int) -> None:
        self._free = value
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def acquire(self, timeout: float | None = None) -> bool:
        """Wait for a turn; ``timeout`` None: for ever. False: timeout."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Event()
            self._waiting.append(turn)
        try:
            given = turn.wait(timeout)
        except BaseException:
            # A signal's handler raised. A turn that came meanwhile goes to the next thread.
            if not self._leave(turn):
                self.release()
            raise
        # It may have come just after the time was over.
        return given or not self._leave(turn)

    def _leave(self, turn: threading.Event) -> bool:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def release(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


class _ForkAware(Protocol):
    """An object with resources of one process.

    A child inherits locks held by threads that it does not have, and descriptors whose file locks and events
    it shares with its parent. The hook runs before anything else in the child. Comparing the process id on
    each call instead would let two threads of the child notice at once.
    """

    def after_fork(self) -> None:
        """Drop the resources of the parent. Called in the child, which has one thread then."""


_registered: weakref.WeakSet[_ForkAware] = weakref.WeakSet()


def register(item: _ForkAware) -> None:
    """Call ``after_fork`` of an item in each child, as long as the item lives."""
    _registered.add(item)


def _run_hooks() -> None:
    for item in list(_registered):
        item.after_fork()


os.register_at_fork(after_in_child=_run_hooks)
