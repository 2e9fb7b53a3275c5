"""Where the queue is, the environment says (``PENSTOCK_URL``, ``PENSTOCK_STATE``)."""

from __future__ import annotations

import time
from typing import Any

from penstock import Penstock

app = Penstock()


@app.function("noop")
def noop(payload: dict[str, Any]) -> int:  # noqa: ARG001 - it does nothing
    return 1


@app.function("moment")
def moment(payload: dict[str, Any]) -> float:  # noqa: ARG001 - only when it was called counts
    return time.monotonic()
