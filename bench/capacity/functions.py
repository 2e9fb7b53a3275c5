"""The application of the measured workers: functions that do nothing but say when they ran.

The environment names the store (``PENSTOCK_URL``, ``PENSTOCK_STATE``) and the directory of the marks.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from bench.peers.marks import MARKS_VARIABLE, Marks
from penstock import Penstock

app = Penstock()
_marks: list[Marks] = []


@app.function("noop")
def noop(payload: dict[str, Any]) -> None:
    """Mark the job as run. The file is mapped by the process that runs the job."""
    if not _marks:
        _marks.append(Marks(Path(os.environ[MARKS_VARIABLE])))
    _marks[0].set(payload["number"])


@app.function("moment")
def moment(payload: dict[str, Any]) -> float:  # noqa: ARG001 - only the time of the call counts
    return time.monotonic()
