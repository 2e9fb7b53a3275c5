"""Results on their way to the store. None is dropped because the store, or another result, has a problem."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock import lifecycle
from penstock.errors import DiskFull, PenstockError, StoreError, StoreUnavailable
from penstock.job import Claim, ClaimRequest, Exchange, Settlement, Status
from penstock.queue.protocol import Queue
from penstock.worker.shared_state import SharedState

log = logging.getLogger("penstock.worker")

OUTAGE = (StoreUnavailable, DiskFull)
"""What passes by itself. Any other error of the store stops the worker."""


class Outbox:
    """Filled by the main thread, emptied by it or by the sender. What is in it is also kept in the slot."""

    def __init__(self, queue: Queue, state: SharedState) -> None:
        self._queue = queue
        self._state = state
        self._results: list[Settlement] = []
        self._sent: list[Settlement] = []
        self._lock = threading.Lock()
        self._sending = threading.Lock()

    def __len__(self) -> int:
        return len(self._results)

    def claims(self) -> set[tuple[str, int]]:
        """Whose results are here, or on their way."""
        with self._lock:
            return {(result.queue_id, result.claim_number) for result in self._results + self._sent}

    def add(self, results: Sequence[Settlement]) -> bool:
        """False: the slot has no room for them, so they should be sent at once."""
        with self._lock:
            self._results += results
            return self._state.save_results(results)

    def send(self) -> None:
        """Settle all there is; on a ``StoreError`` nothing is lost and the next call tries again."""
        if not self._results:
            return
        with self._sending:
            with self._taken() as results:
                statuses = settle_all(self._queue, results)
            self._count_refused(statuses)

    def exchange(self, request: ClaimRequest) -> list[Claim]:
        """Settle all there is and claim: in one transaction, unless the store refuses one of the results."""
        with self._sending:
            with self._taken() as results:
                try:
                    exchange = self._queue.exchange(results, request)
                except StoreError:
                    raise
                except Exception:  # noqa: BLE001 - whatever it is, it must not hold up the other results
                    exchange = Exchange(settle_all(self._queue, results), [])
            self._count_refused(exchange.settled)
            return exchange.claims

    def settle_now(self, settlement: Settlement) -> Status | None:
        """For a handler in the middle of its work: past the box, not past whoever sends."""
        with self._sending:
            return self._queue.settle([settlement])[0]

    @contextmanager
    def _taken(self) -> Iterator[list[Settlement]]:
        """All results; put back in front when the block fails."""
        with self._lock:
            results = self._sent = self._results
            self._results = []
        try:
            yield results
        except BaseException:
            with self._lock:
                self._results = results + self._results
                self._sent = []
            raise
        with self._lock:
            self._sent = []
            if not self._results:
                self._state.clear_results()

    def _count_refused(self, statuses: Sequence[Status | None]) -> None:
        refused = sum(status is None for status in statuses)
        if refused:
            self._state.count_refused(refused)
            log.warning("%d results came too late: the jobs were no longer ours", refused)


def settle_all(queue: Queue, settlements: Sequence[Settlement]) -> list[Status | None]:
    """Together if possible; when the store refuses that, each alone, and the one it refuses fails its job."""
    if not settlements:
        return []
    try:
        return queue.settle(settlements)
    except StoreError:
        raise
    except Exception:  # noqa: BLE001 - found out one by one which of them it is
        return [_settle_one(queue, settlement) for settlement in settlements]


def _settle_one(queue: Queue, settlement: Settlement) -> Status | None:
    try:
        return queue.settle([settlement])[0]
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - the job ends with the reason its result was refused
        log.warning("the result of job %s was refused: %s", settlement.queue_id, error)
        job = queue.get(settlement.queue_id)
        if job is None or job.claim_number != settlement.claim_number:
            return None
        code = error.code if isinstance(error, PenstockError) else "ERR_BAD_RESULT"
        message = f"the store refused its result: {type(error).__name__}: {error}"
        return queue.settle([lifecycle.failed(job, code, message)])[0]
