"""Whether a queue has nothing left that this moment could bring forward."""

from __future__ import annotations

from penstock.queue.protocol import Queue


def idle(queue: Queue) -> bool:
    """Nothing can be claimed, nothing runs, and nothing is in back-off.

    Jobs that are paused, scheduled for later or given back for later do not count until that time has come,
    nor does what only waits for them: parents for their children, jobs for a lock.
    """
    return not queue.busy()
