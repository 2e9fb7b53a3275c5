"""The same on huey, with its defaults: WAL, synchronous FULL, results kept."""

from __future__ import annotations

import os
from typing import Any

from huey import SqliteHuey

huey = SqliteHuey(filename=os.environ["BENCH_HUEY"])


@huey.task()  # type: ignore[untyped-decorator]
def noop(payload: dict[str, Any]) -> int:  # noqa: ARG001 - it does nothing
    return 1
