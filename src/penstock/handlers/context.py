"""What a handler is given: its job, and ways to say how far it is and to be told to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from penstock.errors import Cancelled
from penstock.job import Claim

PROGRESS_LIMIT = 3_500
"""Bytes of encoded progress: it travels through a fixed place in shared memory."""


class Context:
    """One attempt at one job.

    ``payload`` is the request, ``attempt`` counts from 1, ``log`` names the job in every line.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        tell: Callable[[str], None],
        asked_to_stop: Callable[[], bool],
        calling: Callable[[str], AbstractContextManager[None]] = nullcontext,  # type: ignore[assignment]
    ) -> None:
        self.claim = claim
        self.job_id = claim.queue_id
        self.payload: dict[str, Any] = claim.payload
        self.attempt = claim.retry_count + 1
        self.log = logging.LoggerAdapter(logging.getLogger("penstock.job"), {"job_id": claim.queue_id})
        self._tell = tell
        self._asked_to_stop = asked_to_stop
        self._calling = calling

    def progress(
        self, current: int, total: int | None = None, message: str | None = None, **counts: int
    ) -> None:
        """Say how far the work is. Cheap: it is written out at most once a second by somebody else."""
        percent = round(current / total * 100, 1) if total else 0.0
        said = {"current": current, "total": total, "percent": percent, "message": message, "counts": counts}
        encoded = msgspec.json.encode(said)
        if len(encoded) > PROGRESS_LIMIT:
            encoded = msgspec.json.encode(said | {"message": None, "counts": {}})
        self._tell(encoded.decode())
        self.checkpoint()

    def checkpoint(self) -> None:
        """Stop here if somebody cancelled the job. Call it wherever stopping is safe."""
        if self._asked_to_stop():
            raise Cancelled("the job was cancelled")

    def service(self, name: str) -> AbstractContextManager[None]:
        """Around calls to a backing service, ``ServiceUnavailable`` being raised inside when it is down.

            with context.service("qdrant"):
                client.upsert(...)

        While it is known to be down the block is not entered: the job waits, and spends no retry.
        """
        return self._calling(name)
