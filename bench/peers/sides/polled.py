"""A worker for libraries that have none: take, run, say done; look again soon when there was nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.peers import work
from bench.peers.contract import Payload

LOOK_S = 0.01


def serve(take: Callable[[], tuple[object, Payload] | None], done: Callable[[object], object]) -> None:
    while True:
        taken = take()
        if taken is None:
            time.sleep(LOOK_S)
            continue
        key, payload = taken
        work.run(payload)
        done(key)
