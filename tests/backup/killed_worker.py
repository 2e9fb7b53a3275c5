"""A worker whose first backup is killed: python -m tests.backup.killed_worker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.assembly import Assembly
from penstock.backup.archive import ArchiveWriter
from tests.backup.places import settings_of
from tests.legacy.killed_import import dies


def main(engine: str, place: str, job_id: str, mark: str) -> None:
    whole = ArchiveWriter.finish

    def finish(writer: Any) -> Any:
        if Path(mark).exists():
            return whole(writer)
        Path(mark).touch()
        return dies(whole, [1], after=True)(writer)

    ArchiveWriter.finish = finish  # type: ignore[method-assign, assignment]
    settings = settings_of(engine, Path(place))
    Assembly(settings).worker(until_job=job_id, start_method="fork").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
