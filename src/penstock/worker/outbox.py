"""The outbox: results on their way to the store. None is dropped because the store is unavailable."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock import lifecycle, traces
from penstock.errors import PenstockError, StatementRefused, StoreError
from penstock.job import Claim, ClaimRequest, Job, Settlement, Status
from penstock.named_tuple import NamedTuple
from penstock.queue.exchange import Exchange, SentExchange
from penstock.queue.protocol import Queue
from penstock.vocabulary import how_many
from penstock.worker.shared_state import SharedState

log = logging.getLogger("penstock.worker")


def is_outage(error: BaseException) -> bool:
    """Check whether the store failed as a whole, and did not refuse what was written."""
    return isinstance(error, StoreError) and not isinstance(error, StatementRefused)


class Ahead(NamedTuple):
    """An exchange sent ahead."""

    sent: SentExchange
    results: list[Settlement]
    until: int
    """Place behind their copy in the shared state."""
    began: float


class Outbox:
    """Results not sent yet. The main thread adds them; both the main and the sender thread send them.

    The shared state has a copy, so that the supervisor can send the results of a dead child.
    """

    def __init__(self, queue: Queue, state: SharedState) -> None:
        self._queue = queue
        self._state = state
        self._results: list[Settlement] = []
        self._sent: list[Settlement] = []
        self._ahead: Ahead | None = None
        self._lock = threading.Lock()
        self._sending = threading.Lock()

    def __len__(self) -> int:
        return len(self._results)

    def claims(self) -> set[tuple[str, int]]:
        """Claims with results in the outbox or being sent."""
        with self._lock:
            ahead = self._ahead.results if self._ahead is not None else []
            return {(result.queue_id, result.claim_number) for result in ahead + self._results + self._sent}

    def add(self, results: Sequence[Settlement]) -> bool:
        """Add results. False: the shared state has no room for a copy, so they should be sent at once."""
        with self._lock:
            self._results += results
            return self._state.save_results(results)

    def send(self) -> None:
        """Settle all results. After a ``StoreError`` they are all still here for the next call."""
        if not self._results:
            return
        with self._in_store():
            with self._taken() as results:
                statuses = settle_all(self._queue, results)
            self._count(results, statuses)

    def exchange(self, request: ClaimRequest) -> list[Claim]:
        """Settle all results and claim, in one transaction unless the store refuses a result."""
        with self._in_store():
            with self._taken() as results:
                began = time.monotonic()
                try:
                    exchange = self._queue.exchange(results, request)
                except Exception as error:  # one bad result must not hold up the others
                    if not results or is_outage(error):
                        raise
                    exchange = Exchange(settle_all(self._queue, results), [])
            self._count(results, exchange.settled)
            self._count_claims(exchange.claims, began)
            return exchange.claims

    # Ahead: the store works while jobs run here.

    @property
    def ahead(self) -> bool:
        """True if an exchange was sent whose result is not read."""
        return self._ahead is not None

    def send_ahead(self, request: ClaimRequest) -> None:
        """Send all results and a claim, if the store can do so without being waited for."""
        with self._in_store():
            if self._ahead is not None:
                return
            began = time.monotonic()
            with self._lock:
                results, until = list(self._results), self._state.results_end
            sent = self._queue.send_exchange(results, request)
            if sent is not None:
                with self._lock:
                    self._results = self._results[len(results) :]
                    self._ahead = Ahead(sent, results, until, began)

    def collect(self) -> list[Claim]:
        """Wait for the exchange sent ahead. After an error its results are here again."""
        with self._in_store():
            ahead = self._ahead
            if ahead is None:
                return []
            try:
                exchange = ahead.sent.finish()
            except BaseException as error:
                with self._lock:
                    self._results, self._ahead = ahead.results + self._results, None
                if is_outage(error) or not isinstance(error, Exception):
                    raise
                return []  # one result is bad: the next exchange finds out which
            with self._lock:
                self._ahead = None
                self._state.drop_results(ahead.until)
            self._count(ahead.results, exchange.settled)
            self._count_claims(exchange.claims, ahead.began)
            return exchange.claims

    def _count_claims(self, claims: Sequence[Claim], began: float) -> None:
        if claims:
            self._state.count("claims", len(claims))
            self._state.count("claim_us", round((time.monotonic() - began) * 1_000_000))

    def settle_now(self, settlement: Settlement) -> Status | None:
        """Settle at once for a running handler; skips the batch, but waits for a send in progress."""
        with self._in_store():
            return self._queue.settle([settlement])[0]

    def read_job(self, queue_id: str) -> Job | None:
        """Read a row for a running handler."""
        with self._in_store():
            return self._queue.get(queue_id)

    @contextmanager
    def _in_store(self) -> Iterator[None]:
        """Use the store, alone; the supervisor can see that this process may have a transaction open."""
        with self._sending:
            self._state.set_in_store(True)
            try:
                yield
            finally:
                self._state.set_in_store(False)

    @contextmanager
    def _taken(self) -> Iterator[list[Settlement]]:
        """Take all results out; put them back in front when the block fails."""
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
            if not self._results and self._ahead is None:
                self._state.clear_results()

    def _count(self, results: Sequence[Settlement], statuses: Sequence[Status | None]) -> None:
        traces.settled(results, statuses)
        for result, status in zip(results, statuses, strict=True):
            if status in (Status.DONE, Status.FAILED):
                self._state.count("jobs_done" if status is Status.DONE else "jobs_failed")
            elif status is Status.PENDING and result.error_code is not None:
                self._state.count("retries")
        refused = sum(status is None for status in statuses)
        if refused:
            self._state.count_refused(refused)
            late = how_many(refused, "result")
            log.warning("%s came too late: the jobs had been taken from this worker", late)


def settle_all(queue: Queue, settlements: Sequence[Settlement]) -> list[Status | None]:
    """Settle together, or one by one when the store refuses the batch; a refused result fails the job."""
    if not settlements:
        return []
    try:
        return queue.settle(settlements)
    except Exception as error:  # one by one shows which result it is
        if is_outage(error):
            raise
        return [_settle_one(queue, settlement) for settlement in settlements]


def _settle_one(queue: Queue, settlement: Settlement) -> Status | None:
    try:
        return queue.settle([settlement])[0]
    except Exception as error:  # the job fails with the reason of the refusal
        if is_outage(error):
            raise
        log.warning("the result of job %s was refused: %s", settlement.queue_id, error)
        job = queue.get(settlement.queue_id)
        if job is None or job.claim_number != settlement.claim_number:
            return None
        code = error.code if isinstance(error, PenstockError) else "ERR_BAD_RESULT"
        message = f"the store refused its result: {type(error).__name__}: {error}"
        return queue.settle([lifecycle.failed(job, code, message)])[0]
