"""Job records of another queue in files: a snapshot, and a journal of later records, one JSON a line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from penstock.errors import ImportRefused, PathNotFound, StoreError
from penstock.legacy.mappings import RETIRED, LegacyRow

_JOURNAL, _SNAPSHOT = "index_queue.jsonl", "index_queue.snapshot"
_TABLE = "index_queue"
_OURS = frozenset({"n", "at", "do"})
"""Fields of each record of our own journal."""
_LONGEST_LINE = 16 * 1024 * 1024


class _RecordPlace(msgspec.Struct, frozen=True):
    """Place of a record: the file, and the start and end offsets."""

    file: str
    start: int
    length: int


class JournalSource:
    """The last record of each job. Only places of records are kept in memory."""

    def __init__(self, address: str) -> None:
        self.shown = address
        self._directory = _directory(Path(address.removeprefix("jsonl://")).expanduser().absolute())
        self.identity = f"file://{self._directory.resolve()}"
        self._files = {
            name: path
            for name in (_SNAPSHOT, _JOURNAL)
            for path in (self._directory / f"{name}{RETIRED}", self._directory / name)
            if path.is_file()
        }
        self._scan()

    def _scan(self) -> None:
        """Find the last record of each job."""
        self._places: dict[str, _RecordPlace] = {}
        self._faults: list[LegacyRow] = []
        try:
            for name, path in self._files.items():
                self._read(name, path)
        except OSError as error:
            raise StoreError(f"{error.filename}: {error.strerror}") from error

    def _read(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            first = file.readline(_LONGEST_LINE).strip()
            file.seek(0)
            if name == _SNAPSHOT and first and not _is_record(first):
                self._read_whole(name, file.read())
                return
            number, start = 0, 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if line.strip():
                    self._read_line(name, number, line, start)
                start += len(line)

    def _read_line(self, name: str, number: int, line: bytes, start: int) -> None:
        found = _decoded(line)
        if name == _JOURNAL and number == 1 and isinstance(found, dict) and found.keys() >= _OURS:
            raise ImportRefused(
                f"{self.shown} is a store of Penstock",
                remedy="Name the store of another program.",
            )
        if isinstance(found, dict) and isinstance(found.get("id") or found.get("job_id"), str):
            self._places[str(found.get("id") or found.get("job_id"))] = _RecordPlace(
                name, start, len(line.rstrip())
            )
            return
        fault = found if isinstance(found, str) else "the record has no id of a job"
        if not line.endswith(b"\n"):
            fault = f"the last line is cut off: {fault}"
        self._faults.append(LegacyRow(name, f"line {number}", fault=fault))

    def _read_whole(self, name: str, content: bytes) -> None:
        """A snapshot that is one JSON value: a list of records, or an object of them by id."""
        try:
            found: Any = msgspec.json.decode(content, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
            if isinstance(found, dict) and "jobs" in found:
                found = msgspec.json.decode(found["jobs"], type=dict[str, msgspec.Raw] | list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._faults.append(LegacyRow(name, "all", fault=f"the snapshot is not JSON: {error}"))
            return
        position = 0
        for number, raw in enumerate(found.values() if isinstance(found, dict) else found, 1):
            record = bytes(raw)
            position = content.index(record, position)
            self._read_line(name, number, record + b"\n", position)
            position += len(record)

    def count(self) -> int:
        return len(self._places) + len(self._faults)

    def rows(self) -> Iterator[LegacyRow]:
        opened: dict[str, IO[bytes]] = {name: path.open("rb") for name, path in self._files.items()}
        try:
            for job_id, place in self._places.items():
                opened[place.file].seek(place.start)
                found = _decoded(opened[place.file].read(place.length))
                if not isinstance(found, dict) or job_id not in (found.get("id"), found.get("job_id")):
                    raise StoreError(
                        f"{self._files[place.file]} was changed while it was read",
                        remedy="Stop the program that writes it, then import again.",
                    )
                yield LegacyRow(_TABLE, job_id, found)
        finally:
            for file in opened.values():
                file.close()
        yield from self._faults

    def retire(self) -> list[str]:
        try:
            for name, path in self._files.items():
                if not path.name.endswith(RETIRED):
                    self._files[name] = path.rename(path.with_name(f"{path.name}{RETIRED}"))
        except OSError as error:
            raise StoreError(f"{error.filename}: {error.strerror}") from error
        # Records that were added since the files were read.
        self._scan()
        return [str(path) for path in self._files.values()]

    def drop(self) -> list[str]:
        gone = list(self._files.values())
        try:
            for path in gone:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{error.filename}: {error.strerror}") from error
        return [str(path) for path in gone]

    def close(self) -> None:
        """Do nothing: files are closed after each read."""


def _directory(path: Path) -> Path:
    if not os.path.exists(path):  # noqa: PTH110 - it never raises
        raise PathNotFound(f"{path} does not exist", remedy=f"Name the directory with {_JOURNAL}.")
    folders = [path.parent] if os.path.isfile(path) else [path, path / "jobs"]  # noqa: PTH113 - it never raises
    names = [f"{name}{suffix}" for name in (_JOURNAL, _SNAPSHOT) for suffix in ("", RETIRED)]
    if path.is_file() and path.name not in names:
        raise ImportRefused(f"{path} is not {_JOURNAL}", remedy=f"Name the directory with {_JOURNAL}.")
    for folder in folders:
        if any((folder / name).is_file() for name in names):
            return folder
    raise ImportRefused(
        f"{path} has no {_JOURNAL} and no {_SNAPSHOT}", remedy=f"Name the directory with {_JOURNAL}."
    )


def _is_record(line: bytes) -> bool:
    found = _decoded(line)
    return isinstance(found, dict) and ("id" in found or "job_id" in found)


def _decoded(line: bytes) -> dict[str, Any] | str:
    """The object of a line, or a description of the fault."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"not JSON: {error}"
    return found if isinstance(found, dict) else f"expected a JSON object, got {type(found).__name__}"
