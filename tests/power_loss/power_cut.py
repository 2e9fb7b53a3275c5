"""Files as a power cut may leave them, made from recorded changes.

A sync of a file makes its content durable. New, renamed and removed names are durable with a sync of their
folder; until then the first few of them may have come into effect. A change that was not synced is there, is
missing, or is there in some of its sectors, whatever became of the changes before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.power_loss.recording import Change

SECTOR = 512


class _File:
    """A file: the synced content, and the changes since."""

    def __init__(self) -> None:
        self.synced = b""
        self.pending: list[Change] = []

    def sync(self) -> None:
        self.synced = _changed(self.synced, self.pending)
        self.pending = []


class _Move(NamedTuple):
    """A change of a name, and the file that has it."""

    change: Change
    file: _File


class FileSystem:
    """The state after some changes, from which power cuts are made."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._names: dict[str, _File] = {}
        self._synced_names: dict[str, _File] = {}
        self._moves: list[_Move] = []
        """Changes of names that are not synced."""

    def apply(self, change: Change) -> None:
        match change.what:
            case "c" | "r" | "u":
                file = _File() if change.what == "c" else self._names[change.path]
                self._moves.append(_Move(change, file))
                _rename(self._moves[-1:], self._names)
            case "s":
                self._sync(change.path)
            case _:
                self._names[change.path].pending.append(change)

    def _sync(self, path: str) -> None:
        file = self._names.get(path)
        if file is not None:
            file.sync()
            return
        own = [move for move in self._moves if os.path.dirname(move.change.path) == path]  # noqa: PTH120 - text
        self._moves = [move for move in self._moves if move not in own]
        _rename(own, self._synced_names)

    def cut(self, target: Path, random: Random) -> None:
        """Write the files as they are after a power cut."""
        names = dict(self._synced_names)
        _rename(self._moves[: random.randint(0, len(self._moves))], names)
        # Often all or nothing: each alone shows what random parts of many changes seldom do.
        chance = random.choice([0.0, 0.5, 0.9, 1.0])
        for path, file in names.items():
            kept = [one for change in file.pending for one in _survivors(change, chance, random)]
            written = target / os.path.relpath(path, self._root)
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(_changed(file.synced, kept))


def _rename(moves: Iterable[_Move], names: dict[str, _File]) -> None:
    for change, file in moves:
        if change.what == "c":
            names[change.path] = file
            continue
        names.pop(change.path, None)
        if change.what == "r":
            names[change.data.decode()] = file


def _survivors(change: Change, chance: float, random: Random) -> list[Change]:
    """The parts of a change that reached the disk."""
    if change.what == "t" or len(change.data) <= SECTOR or random.random() < 0.5:
        return [change] if random.random() < chance else []
    # A write begins anywhere in a sector; the next sector begins at a multiple of its size.
    first = SECTOR - change.offset % SECTOR
    ends = [0, *range(first, len(change.data), SECTOR), len(change.data)]
    return [
        Change("w", change.path, change.offset + start, change.data[start:end])
        for start, end in pairwise(ends)
        if random.random() < chance
    ]


def _changed(content: bytes, changes: Sequence[Change]) -> bytes:
    found = bytearray(content)
    for change in changes:
        end = change.offset + len(change.data)
        if change.what == "t":
            del found[change.offset :]
        found.extend(bytes(max(0, end - len(found))))
        found[change.offset : end] = change.data
    return bytes(found)
