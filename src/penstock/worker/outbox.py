"""Results on their way to the store. None is dropped because the store, or another result, has a problem."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from penstock import lifecycle
from penstock.errors import PenstockError, StoreError
from penstock.job import Claim, ClaimRequest, Exchange, Settlement, Status
from penstock.queue.protocol import Queue
from penstock.worker.slot import Slot

log = logging.getLogger("penstock.worker")


class Result(NamedTuple):
    claim: Claim
    settlement: Settlement


class Outbox:
    """Filled by the main thread, emptied by it or by the sender."""

    def __init__(self, queue: Queue, slot: Slot) -> None:
        self._queue = queue
        self._slot = slot
        self._results: list[Result] = []
        self._lock = threading.Lock()
        self._sending = threading.Lock()

    def __len__(self) -> int:
        return len(self._results)

    def put(self, results: Sequence[Result]) -> None:
        with self._lock:
            self._results += results

    def send(self) -> None:
        """Settle all there is; on a ``StoreError`` nothing is lost and the next call tries again."""
        if not self._results:
            return
        with self._sending, self._taken() as results:
            if results:
                self._count_refused(self._settle(results))

    def exchange(self, request: ClaimRequest) -> list[Claim]:
        """Settle all there is and claim: in one transaction, unless the store refuses one of the results."""
        with self._sending:
            with self._taken() as results:
                try:
                    exchange = self._queue.exchange([result.settlement for result in results], request)
                except StoreError:
                    raise
                except Exception:  # noqa: BLE001 - whatever it is, it must not hold up the other results
                    exchange = Exchange(self._settle(results), [])
            self._count_refused(exchange.settled)
            return exchange.claims

    @contextmanager
    def _taken(self) -> Iterator[list[Result]]:
        """All results; put back in front when the block fails."""
        with self._lock:
            results, self._results = self._results, []
        try:
            yield results
        except BaseException:
            with self._lock:
                self._results = results + self._results
            raise

    def _settle(self, results: list[Result]) -> list[Status | None]:
        try:
            return self._queue.settle([result.settlement for result in results])
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - found out one by one which of them it is
            return [status for result in results for status in self._settle_one(result)]

    def _settle_one(self, result: Result) -> list[Status | None]:
        try:
            return self._queue.settle([result.settlement])
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the job ends with the reason its result was refused
            code = error.code if isinstance(error, PenstockError) else "ERR_BAD_RESULT"
            log.warning("the result of job %s was refused: %s", result.claim.queue_id, error)
            message = f"the store refused its result: {type(error).__name__}: {error}"
            return self._queue.settle([lifecycle.failed(result.claim, code, message)])

    def _count_refused(self, statuses: Sequence[Status | None]) -> None:
        refused = sum(status is None for status in statuses)
        if refused:
            self._slot.count_refused(refused)
            log.warning("%d results came too late: the jobs were no longer ours", refused)
