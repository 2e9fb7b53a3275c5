"""Backups that somebody changed, with the right checksums: refused, and a full store stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pytest

from penstock import Penstock
from penstock.backup.archive import ArchiveReader, ArchiveWriter, Header, PartHeader
from penstock.backup.backups import RestoreOptions
from penstock.config import Settings
from penstock.errors import BackupDamaged, PenstockError, RestoreUnfinished
from tests.backup.places import assembled, give_all_back, settings_of

Rows: TypeAlias = list[list[Any]]


class Contents(NamedTuple):
    """A backup to change."""

    header: Header
    parts: dict[str, tuple[PartHeader, Rows]]


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    place = tmp_path_factory.mktemp("source")
    settings = settings_of("sqlite", place)
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            app.wait(app.documents.note("The mill runs at dawn.").job_id, timeout=60)
        app.schedules.add_call("@daily", "f")
        app.limit("k", concurrent=2)
        app.pause(tenant_id="acme")
    with assembled(settings) as made:
        file = Path(made.backups.write(place / "whole.backup").path)
    parts: dict[str, tuple[PartHeader, Rows]] = {}
    with file.open("rb") as opened:
        reader = ArchiveReader(opened, str(file))
        for part in reader.rows():
            parts.setdefault(part.header.part, (part.header, []))[1].extend(list(row) for row in part.rows)
    return Contents(reader.header, parts)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Settings]:
    """A store with a job in it."""
    settings = settings_of("sqlite", tmp_path / "full")
    with assembled(settings) as made:
        made.jobs.submit(item_type="content", op="ingest", payload={"content": "Kept."})
        assert made.catalog.transfer.is_empty()
    yield settings
    give_all_back(tmp_path)


def written(path: Path, header: Header, parts: list[tuple[PartHeader, Rows]]) -> Path:
    with path.open("w+b") as file:
        writer = ArchiveWriter(file, header)
        for part, rows in parts:
            writer.begin(part)
            if rows:
                writer.add(rows)
            writer.end()
        writer.finish()
    return path


Change: TypeAlias = Callable[[Contents], tuple[Header, list[tuple[PartHeader, Rows]]]]


def numbers(**given: int) -> Change:
    return lambda made: (msgspec.structs.replace(made.header, numbers=given), list(made.parts.values()))


def without(part: str) -> Change:
    return lambda made: (made.header, [one for name, one in made.parts.items() if name != part])


def changed(part: str, change: Callable[[PartHeader, Rows], tuple[PartHeader, Rows]]) -> Change:
    return lambda made: (
        made.header,
        [change(*one) if name == part else one for name, one in made.parts.items()],
    )


def values(part: str, value: Any) -> Change:
    return changed(part, lambda header, rows: (header, [[value] * len(header.columns) for _ in rows]))


def fewer(part: str) -> Change:
    return changed(part, lambda header, rows: (PartHeader(part, ()), [[] for _ in rows]))


def twice(part: str) -> Change:
    return lambda made: (made.header, [*made.parts.values(), made.parts[part]])


BEFORE: dict[str, Change] = {
    "no parts": lambda made: (made.header, []),
    "no jobs": without("queue/jobs"),
    "no sources": without("catalog/sources"),
    "no numbers": numbers(),
    "a negative number": numbers(row=-1, change=0),
    "a number too large": numbers(row=2**63, change=0),
    "jobs twice": twice("queue/jobs"),
    "no columns": fewer("queue/limits"),
    "a column twice": changed(
        "queue/limits",
        lambda _, rows: (PartHeader("queue/limits", ("limit", "limit")), [r * 2 for r in rows]),
    ),
    "lists for values": values("catalog/sources", [1, 2]),
    "maps for values": values("catalog/documents", {"a": 1}),
    "numbers too large": values("catalog/catalog_content", 2**63),
    "texts for jobs": values("queue/jobs", "x"),
    "nothing for limits": values("queue/limits", None),
    "text for schedules": values("queue/schedules", "x"),
    "numbers for pauses": values("queue/pauses", 1),
    "an unknown table": lambda made: (
        made.header,
        [*made.parts.values(), (PartHeader("catalog/sqlite_master", ("sql",)), [["x"]])],
    ),
    "a column that is a statement": changed(
        "catalog/sources",
        lambda header, rows: (PartHeader(header.part, (*header.columns[:-1], 'x"); DROP TABLE y --')), rows),
    ),
}


@pytest.mark.parametrize("name", BEFORE)
def test_a_changed_backup_is_refused_before_anything_is_deleted(
    tmp_path: Path, contents: Contents, full: Settings, name: str
) -> None:
    file = written(tmp_path / "changed.backup", *BEFORE[name](contents))
    with assembled(full) as made:
        with pytest.raises(PenstockError):
            made.backups.restore(file, RestoreOptions(replace=True))
        assert 1 == len(made.jobs.jobs())


@pytest.mark.parametrize(
    "change",
    [
        values("catalog/sources", None),
        values("catalog/sources", "x\0y"),
        values("catalog/task_queue_chunk", "x"),
        changed("catalog/sources", lambda header, rows: (header, rows * 2)),
    ],
)
def test_rows_that_no_table_takes_leave_stores_that_nobody_opens(
    tmp_path: Path, contents: Contents, change: Change
) -> None:
    other = settings_of("sqlite", tmp_path / "other")
    file = written(tmp_path / "changed.backup", *change(contents))
    with assembled(other) as made, pytest.raises(BackupDamaged, match="cannot be restored"):
        made.backups.restore(file)
    with pytest.raises(RestoreUnfinished), assembled(other) as made:
        assert made.queue
    whole = written(tmp_path / "whole.backup", contents.header, list(contents.parts.values()))
    with assembled(other) as made:
        made.backups.restore(whole)
        assert [] == made.catalog.audit()
