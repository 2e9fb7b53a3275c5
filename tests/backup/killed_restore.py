"""A backup, restore or move that is killed at a chosen call: python -m tests.backup.killed_restore."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.backup import backups
from penstock.backup.archive import ArchiveWriter
from penstock.backup.backups import StoreTarget
from tests.backup.places import settings_of
from tests.legacy.killed_import import dies

POINTS: dict[str, tuple[type[Any], str, bool]] = {
    "while writing": (ArchiveWriter, "add", True),
    "before the footer": (ArchiveWriter, "finish", False),
    "after the footer": (ArchiveWriter, "finish", True),
    "begun": (StoreTarget, "begin", True),
    "while inserting": (StoreTarget, "take", True),
    "before the catalog ends": (StoreTarget, "end_catalog", False),
    "between catalog and queue": (StoreTarget, "end_catalog", True),
    "at the end": (StoreTarget, "end_queue", True),
}


def main(engine: str, place: str, file: str, point: str, calls: str) -> None:
    owner, name, after = POINTS[point]
    setattr(owner, name, dies(getattr(owner, name), [int(calls)], after=after))
    settings = settings_of(engine, Path(place))
    if "://" in file:
        source = backups.source_settings(file, None, settings)
        with backups.opened(source) as store, backups.opened(settings, restoring=True) as target:
            backups.move(store, target, lambda *_: None)
        return
    use = backups.Backups(settings)
    if owner is ArchiveWriter:
        use.write(Path(file))
    else:
        use.restore(Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
