"""The executor: calls a handler and turns its result or error into one settlement for each job.

``Breakers`` hold back jobs whose service is down, and the ``Outbox`` keeps results until they are stored.
"""

from __future__ import annotations

import contextvars
import logging
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from penstock import clock, traces
from penstock.errors import (
    OUTAGES,
    InvalidRequest,
    JobError,
    LeaseLost,
    PenstockError,
    PermanentFailure,
    ServiceUnavailable,
    StateDamaged,
    StatementRefused,
    StoreError,
)
from penstock.handlers.context import Context, Later, NotHandledHere, Registered, Registry, Wait
from penstock.queue import retry, transitions
from penstock.queue.job import DEFAULT_TIMEOUT_S, Claim, ClaimRequest, Job, Settlement, Status
from penstock.queue.protocol import Exchange, Queue, SentExchange
from penstock.queue.transitions import Holder, printable
from penstock.strict_json import encode_strictly
from penstock.vocabulary import how_many
from penstock.worker.shared_state import ExecutingJob, SharedState

log = logging.getLogger("penstock.worker")


def _is_outage(error: BaseException) -> bool:
    """Check whether the store failed as a whole, and did not refuse what was written."""
    return isinstance(error, StoreError) and not isinstance(error, StatementRefused)


class Ahead(msgspec.Struct, frozen=True):
    """An exchange sent ahead."""

    sent: SentExchange
    results: list[Settlement]
    until: int
    """Place behind their copy in the shared state."""
    began: float


class Outbox:
    """Results on their way to the store. None is dropped because the store is unavailable.

    The main thread adds them; both the main and the sender thread send them.
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
                    if not results or _is_outage(error):
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
                if _is_outage(error) or not isinstance(error, Exception):
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
        if _is_outage(error):
            raise
        return [_settle_one(queue, settlement) for settlement in settlements]


def _settle_one(queue: Queue, settlement: Settlement) -> Status | None:
    try:
        return queue.settle([settlement])[0]
    except Exception as error:  # the job fails with the reason of the refusal
        if _is_outage(error):
            raise
        log.warning("the result of job %s was refused: %s", settlement.queue_id, error)
        job = queue.get(settlement.queue_id)
        if job is None or job.claim_number != settlement.claim_number:
            return None
        code = error.code if isinstance(error, PenstockError) else "ERR_BAD_RESULT"
        message = f"the store refused its result: {type(error).__name__}: {error}"
        return queue.settle([transitions.failed(job, code, message)])[0]


# Jobs and errors as text for rows and logs.
#
# A handler may raise an error of any length. Formatting, escaping and logging 50 MB takes minutes, so texts
# are cut before anything else touches them.


_MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 2_000
_CUT = "Traceback (most recent call last):\n  ...\n"
_NAME_LIMIT = 200
_QUOTED_LIMIT = 500
_LOGGED_LIMIT = 64_000
"""Characters of an error and its causes that are logged unchanged."""
_BEHIND_LIMIT = 50
"""Most causes and group members of an error that are logged."""


def job_text(job: Holder) -> str:
    """Name a job for the log, such as ``job_01… (function send_mail)``."""
    kind = f"{job.item_type}/{job.op}"
    if job.item_type == "function":
        with suppress(StateDamaged):  # a payload may be anything
            kind = f"function {job.payload.get('function_name')}"
    return f"job {job.queue_id} ({printable(kind)[:300]})"


class _NamedPayload(msgspec.Struct):
    function_name: str = ""


_decode_name = msgspec.json.Decoder(_NamedPayload).decode


def function_name(claim: Holder) -> str:
    """Return the function a job calls; for other jobs their type and operation."""
    if claim.item_type == "function":
        with suppress(msgspec.DecodeError):
            return _decode_name(claim.payload_json).function_name
    return f"{claim.item_type}/{claim.op}"


def outcome_text(settlement: Settlement) -> str:
    if settlement.status is not Status.PENDING:
        return f"ends as {settlement.status.value}"
    seconds = settlement.delay.total_seconds()
    return f"is tried again in {seconds:g} s" if seconds else "is tried again at once"


def error_text(error: BaseException) -> str:
    """Format an error as text for any store."""
    try:
        text = retry.error_summary(error)[: _NAME_LIMIT + _MESSAGE_LIMIT]
    except Exception:  # noqa: BLE001 - an error without a text is still an error
        text = f"{type(error).__name__[:_NAME_LIMIT]}: (its text cannot be shown)"
    return transitions.printable(text)[:_MESSAGE_LIMIT]


def traceback_text(error: BaseException) -> str:
    """Format the traceback, which the row keeps until the last retry has failed, too.

    Of a long one, the first line and the last frames are kept.
    """
    try:
        text = "".join(traceback.format_exception(_loggable_error(error, TRACEBACK_LIMIT // 2)))
    except Exception:  # noqa: BLE001 - formatting may run code of the error
        return "(it cannot be shown)"
    shown = transitions.printable(text[-TRACEBACK_LIMIT:])
    if len(text) <= TRACEBACK_LIMIT >= len(shown):
        return shown
    last = shown[len(_CUT) - TRACEBACK_LIMIT :]
    return _CUT + (last.partition("\n")[2] or last)


def _loggable_error(error: BaseException, limit: int = _LOGGED_LIMIT) -> BaseException:
    """Return the error or, if too long for the log, a short one with the same name and traceback."""
    length = 0
    for number, each in enumerate(_with_causes(error)):
        length += len(_message(each)) + len(type(each).__name__)
        length += sum(len(note) for note in getattr(each, "__notes__", ()) if isinstance(note, str))
        if length > limit or number >= _BEHIND_LIMIT:
            name = type(error).__name__[:_NAME_LIMIT]
            short: type[Exception] = type(name, (Exception,), {"__module__": "builtins"})
            return short(_message(error)[:_QUOTED_LIMIT]).with_traceback(error.__traceback__)
    return error


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error without a text is still an error
        return "(its text cannot be shown)"


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions


class Stopped(BaseException):
    """Raised in a handler when the supervisor stops the execution; the supervisor settles the jobs."""


OPENS_AFTER = 3
FIRST_PROBE_S = 10.0
LONGEST_PROBE_S = 300.0
_STUMBLE_S = 1.0
"""Delay of a job after a failure that did not open the breaker yet."""

State: TypeAlias = Literal["closed", "open", "half-open"]


class BreakerOpen(ServiceUnavailable):
    """The breaker is open: the service was not called."""


class Breaker(msgspec.Struct, frozen=True):
    """State of one service. The caller passes the time, in seconds of a monotonic clock."""

    failures: int = 0
    probe_at: float = 0.0
    pause_s: float = 0.0
    probing_until: float = 0.0
    """Until then a probe is running, or was lost together with its job."""

    def state(self, now: float) -> State:
        if self.failures < OPENS_AFTER:
            return "closed"
        return "open" if now < self.probe_at else "half-open"

    def allows(self, now: float) -> bool:
        state = self.state(now)
        return state == "closed" or (state == "half-open" and now >= self.probing_until)

    def entered(self, now: float) -> Breaker:
        """The breaker after an allowed call began."""
        if self.state(now) == "closed":
            return self
        return msgspec.structs.replace(self, probing_until=now + self.pause_s)

    def failed(self, now: float) -> Breaker:
        """The breaker after a failed call. Calls begun before the breaker opened count as the same outage."""
        failures = self.failures + 1
        if self.state(now) == "open":
            return self
        if failures < OPENS_AFTER:
            return msgspec.structs.replace(self, failures=failures)
        pause = min(self.pause_s * 2, LONGEST_PROBE_S) if self.pause_s else FIRST_PROBE_S
        return Breaker(failures=failures, probe_at=now + pause, pause_s=pause)

    def undecided(self) -> Breaker:
        """The breaker after a probe failed for another reason; the next call is a probe again."""
        return msgspec.structs.replace(self, probing_until=0.0)

    def wait_s(self, now: float) -> float:
        """Seconds until a call makes sense."""
        if self.state(now) == "closed":
            return _STUMBLE_S * self.failures
        return max(self.probe_at - now, self.probing_until - now, _STUMBLE_S)


class Breakers:
    """Circuit breakers of all services used by this process: while one is down, its jobs wait.

    closed: calls go through. open: calls are refused until the probe is due. half-open: one call goes through
    and decides. Each process has its own breakers and learns of an outage from at most three of its own jobs.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Breaker] = {}
        self._inside: set[tuple[int, str]] = set()
        """Thread and service of the calls being made."""
        self._lock = threading.Lock()

    @contextmanager
    def calling(self, service: str) -> Iterator[None]:
        """Guard calls to a service: refuse them while the breaker is open, close the breaker on success.

        Failures are counted by ``delay``, which also sees errors raised outside of this block.
        """
        call = threading.get_ident(), service
        if call in self._inside:
            yield
            return
        with self._lock:
            breaker, now = self._known.get(service, Breaker()), self._clock()
            if not breaker.allows(now):
                raise BreakerOpen(service)
            self._known[service] = breaker.entered(now)
            self._inside.add(call)
        try:
            yield
        except ServiceUnavailable:
            raise
        except BaseException:
            with self._lock:
                self._known[service] = self._known.get(service, Breaker()).undecided()
            raise
        else:
            with self._lock:
                # A service that is not remembered counts as up.
                self._known.pop(service, None)
        finally:
            with self._lock:
                self._inside.discard(call)

    def delay(self, error: ServiceUnavailable) -> timedelta:
        """Count the failure; return the delay of the job."""
        with self._lock:
            breaker, now = self._known.get(error.service, Breaker()), self._clock()
            if not isinstance(error, BreakerOpen):
                breaker = self._known[error.service] = breaker.failed(now)
        wait = timedelta(milliseconds=round(1000 * breaker.wait_s(now)))
        return max(wait, error.retry_after or wait)

    def states(self) -> dict[str, State]:
        """States of all services with recent failures."""
        now = self._clock()
        with self._lock:
            known = dict(self._known)
        return {service: breaker.state(now) for service, breaker in known.items()}


RESULT_LIMIT = 1 << 20
_FIRST_HANDLER_WAIT = timedelta(seconds=30)
_LONGEST_HANDLER_WAIT = timedelta(minutes=5)
_FIRST_STORE_WAIT = timedelta(seconds=1)
_LONGEST_STORE_WAIT = timedelta(minutes=1)
FREE_OUTAGES = 20
"""Outages of a store that cost a job no retry: a job that causes them itself must end some day."""

FAILURE_CODES = {
    "ERR_NO_HANDLER": "No worker that claimed the job can run its type. The job waits, no retry spent.",
    "ERR_TOO_EARLY": "Enough work is in progress. The job waits, no retry spent, and continues by itself.",
    "ERR_BAD_RESULT": "The handler's result cannot be stored: not JSON, too large, or not one for each job.",
}

_NOT_BEGUN = frozenset({"ERR_NO_HANDLER", "ERR_TOO_EARLY"})
"""Codes of releases before any work."""


# Keys in the progress of a job that is retried, so that the next worker finds them.
_ATTEMPTS = "no_handler"
_SERVICE = "service"
_OUTAGES = "outages"
_TRACEBACK = "traceback"


# Bound here, out of reach of handlers that replace it in its module and do not restore it.
_monotonic = time.monotonic


def executing_job(claim: Claim) -> ExecutingJob:
    """The job as the watchdog sees it, with the time left if its timeout bounds earlier attempts as well."""
    timeout_s = claim.timeout_s
    if claim.progress_json is not None and transitions.bounds_whole_job(claim):
        passed = clock.now() - (transitions.first_start(claim) or clock.now())
        timeout_s = max(timeout_s - int(passed.total_seconds()), 0)
    return ExecutingJob(claim.queue_id, claim.claim_number, timeout_s)


class Executor:
    """Calls the handlers of a registry, for a child, a worker in a thread or the small job of a command."""

    def __init__(self, registry: Registry, breakers: Breakers) -> None:
        self._registry = registry
        self._breakers = breakers

    def batch_size(self, claim: Claim) -> int:
        """Number of jobs like this one in one call. A job suspected of crashing runs alone."""
        handler = self._registry.find(claim.item_type, claim.op)
        return 1 if handler is None or claim.lost_count else max(handler.batch, 1)

    def runs_beside(self, claim: Claim) -> bool:
        """True for a job that mostly waits for the network; see ``BesideJobs``."""
        handler = self._registry.find(claim.item_type, claim.op)
        return handler is not None and handler.beside is not None and handler.beside(claim)

    def execute(
        self,
        claims: Sequence[Claim],
        state: SharedState,
        outbox: Outbox,
        started: float,
        guarded: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> tuple[int, list[Settlement]]:
        """Run these claims as one execution; return its number, which ``guarded`` gets too, and the results.

        Progress and cancel flags go through the shared state. The caller ends the execution there.
        """
        number = state.begin(tuple(map(executing_job, claims)), started)

        def make_context(index: int, claim: Claim) -> Context:
            return Context(
                claim,
                report=lambda text: state.write_progress(number, index, text),
                stop_requested=lambda: state.stop_requested(number, index),
                guard_service=self._breakers.calling,
                settle=outbox.settle_now,
                mark=lambda mark: state.mark_file(number, mark, _monotonic()),
                read_job=outbox.read_job,
                index=index,
            )

        with guarded(number):
            return number, self.run(claims, make_context)

    def run_beside(self, claim: Claim, outbox: Outbox) -> list[Settlement]:
        """Run a job in this thread, beside others: without a place for progress and a flag to stop."""

        def make_context(_: int, claim: Claim) -> Context:
            return Context(
                claim,
                report=lambda _: None,
                stop_requested=lambda: False,
                guard_service=self._breakers.calling,
                settle=outbox.settle_now,
                read_job=outbox.read_job,
            )

        return self.run([claim], make_context)

    def runs_own(self, claim: Claim) -> bool:
        """True for a job of Penstock itself, such as the indexing of a file."""
        handler = self._registry.find(claim.item_type, claim.op)
        return handler is not None and handler.own

    def run(self, claims: Sequence[Claim], make_context: Callable[[int, Claim], Context]) -> list[Settlement]:
        """Call the handler for these claims, all of one kind; return one settlement for each."""
        handler = self._registry.find(claims[0].item_type, claims[0].op)
        if handler is None:
            return [self._without_handler(claim) for claim in claims]
        answers: Sequence[object]
        span, failed = traces.running(claims), None
        began = _monotonic() if claims[0].timeout_s != DEFAULT_TIMEOUT_S else 0.0
        try:
            contexts = [make_context(index, claim) for index, claim in enumerate(claims)]
            with self._needed(claims[0]), span.current() if span is not None else nullcontext():
                answers = _answers(handler, contexts)
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, SystemExit too
            answers, failed = [error] * len(claims), error
        if isinstance(failed, StateDamaged) and len(claims) > 1:
            # One of them cannot be read, as another program wrote its row: the others are not at fault.
            settlements = [
                self.run([claim], _of_index(make_context, index))[0] for index, claim in enumerate(claims)
            ]
            began = 0.0
        else:
            settlements = [
                self._settlement(claim, answer, handler)
                for claim, answer in zip(claims, answers, strict=True)
            ]
        if began and transitions.bounds_whole_job(claims[0]):
            settlements = _with_first_starts(claims, settlements, _monotonic() - began)
        if span is not None:
            span.end(settlements, failed)
        return settlements

    def _needed(self, claim: Claim) -> AbstractContextManager[None]:
        """Guard the call with the breaker of the service, if a service failed this job before."""
        needs = (claim.progress or {}).get(_SERVICE) if claim.progress_json else None
        return self._breakers.calling(needs) if isinstance(needs, str) else nullcontext()

    def _settlement(self, claim: Claim, answer: object, handler: Registered) -> Settlement:
        try:
            if not isinstance(answer, BaseException):
                return _succeeded(claim, answer)
            error = answer
        except BaseException as refusal:  # noqa: BLE001 - encoding may run code of the result
            error = refusal
        if isinstance(error, ServiceUnavailable):
            return self._waits_for_service(claim, error)
        if isinstance(error, NotHandledHere):
            return _not_handled(claim, str(error))
        if isinstance(error, OUTAGES) and _may_wait_for_store(claim):
            return _waits_for_store(claim, error)
        return failure(claim, error, handler)

    def _waits_for_service(self, claim: Claim, error: ServiceUnavailable) -> Settlement:
        why = "it was down when last asked" if isinstance(error, BreakerOpen) else error_text(error)
        reason = f"waits for {error.service}: {why}"
        released_claim = transitions.released(
            claim, reason, delay=self._breakers.delay(error), code=error.code
        )
        return _with_progress(released_claim, claim, _SERVICE, error.service)

    def _without_handler(self, claim: Claim) -> Settlement:
        known = ", ".join(self._registry.pairs()) or "nothing"
        return _not_handled(
            claim, f"no handler for {claim.item_type}/{claim.op} here (this worker runs {known})"
        )


def _of_index(make_context: Callable[[int, Claim], Context], index: int) -> Callable[[int, Claim], Context]:
    """Contexts for a job that runs alone, although the shared state has it in this place of a batch."""
    return lambda _, claim: make_context(index, claim)


def _with_first_starts(
    claims: Sequence[Claim], settlements: Sequence[Settlement], seconds: float
) -> list[Settlement]:
    """Note when jobs that return began. One that comes too early, or has no handler here, did not begin."""
    now = clock.now()
    started_at = now - timedelta(seconds=seconds)
    return [
        settlement
        if settlement.error_code in _NOT_BEGUN
        else transitions.with_first_start(settlement, claim, started_at, now)
        for claim, settlement in zip(claims, settlements, strict=True)
    ]


def _not_handled(claim: Claim, reason: str) -> Settlement:
    """Release the job for a worker with a handler: no retry spent, each time with a longer delay."""
    tried = (claim.progress or {}).get(_ATTEMPTS, 0)
    wait = min(_FIRST_HANDLER_WAIT * 2 ** min(tried, 10), _LONGEST_HANDLER_WAIT)
    released_claim = transitions.released(claim, reason, delay=wait, code="ERR_NO_HANDLER")
    return _with_progress(released_claim, claim, _ATTEMPTS, tried + 1)


def _may_wait_for_store(claim: Claim) -> bool:
    """Return False for functions: they may not be repeatable, so their own number of retries decides."""
    return claim.item_type != "function" and (claim.progress or {}).get(_OUTAGES, 0) < FREE_OUTAGES


def _waits_for_store(claim: Claim, error: StoreError) -> Settlement:
    """Release the job until the store is back: no retry spent, each time with a longer delay."""
    before = (claim.progress or {}).get(_OUTAGES, 0)
    wait = min(_FIRST_STORE_WAIT * 2**before, _LONGEST_STORE_WAIT)
    log.warning(
        "%s waits for its store, next attempt in %d s: %s",
        job_text(claim),
        wait.total_seconds(),
        error_text(error),
        extra={"job_fields": traces.job_fields(claim) | {"error_code": error.code}},
    )
    reason = f"waits for the store: {error_text(error)}"
    released_claim = transitions.released(claim, reason, delay=wait, code=error.code)
    return _with_progress(released_claim, claim, _OUTAGES, before + 1)


def _answers(handler: Registered, contexts: list[Context]) -> Sequence[object]:
    # Context variables that the handler sets, such as the decimal context, end with its job.
    run = contextvars.copy_context().run
    if not handler.batch:
        return [run(handler.call, contexts[0])]
    answers = run(handler.call, contexts)
    if not isinstance(answers, Sequence) or isinstance(answers, str | bytes):
        raise _bad_result(f"the batch handler returned {type(answers).__name__} instead of a list")
    if len(answers) != len(contexts):
        results, jobs = how_many(len(answers), "result"), how_many(len(contexts), "job")
        raise _bad_result(f"the batch handler returned {results} for {jobs}")
    return answers


def _succeeded(claim: Claim, answer: object) -> Settlement:
    if isinstance(answer, Wait):
        return transitions.waits(
            claim,
            answer.waiting_for,
            children=answer.children,
            progress_json=answer.progress_json,
            result_json=answer.result_json,
        )
    if isinstance(answer, Later):
        return transitions.released(claim, answer.reason, delay=answer.delay, code="ERR_TOO_EARLY")
    return transitions.done(claim, result_json=_encode_result(answer))


def _with_progress(released_claim: Settlement, claim: Claim, key: str, value: object) -> Settlement:
    """Store one more key in the job's progress, beside the handler's own, which says where to resume."""
    progress = msgspec.json.encode((claim.progress or {}) | {key: value}).decode()
    return msgspec.structs.replace(released_claim, progress_json=progress)


def failure(claim: Claim, error: BaseException, handler: Registered) -> Settlement:
    try:
        classified = retry.classify(error)
    except Exception:  # noqa: BLE001 - it runs code of the application
        classified = retry.Classification("transient", "ERR_UNKNOWN")
    try:
        schedule = handler.backoff_of(claim)
    except Exception:  # noqa: BLE001 - it runs code of the application
        schedule = retry.JOB_BACKOFF
    settlement = transitions.failed_attempt(
        claim,
        classified,
        error_text(error),
        schedule=schedule,
        jitter=random.uniform(-1, 1),
    )
    if classified.kind != "cancelled":
        _log_failure(claim, error, settlement)
    expected = isinstance(error, JobError | InvalidRequest)
    retried = settlement.status is Status.PENDING and not expected
    # The error record of the Redis contract always has a traceback.
    if retried or (settlement.status is Status.FAILED and claim.submitted_by == "redis"):
        return _with_progress(settlement, claim, _TRACEBACK, traceback_text(error))
    return settlement


def _log_failure(claim: Claim, error: BaseException, settlement: Settlement) -> None:
    """Log the failure, with a traceback unless the handler raised the error to report a failure.

    The row keeps the text of the error only; the log is the place for the traceback.
    """
    attempt, most = claim.retry_count + 1, claim.max_retries + 1
    values = (job_text(claim), attempt, most, outcome_text(settlement), error_text(error))
    # An outage, or a job taken away, is no defect of the handler; the message says what happened.
    expected = isinstance(error, (JobError, InvalidRequest, *OUTAGES, LeaseLost))
    trace = None if expected else _loggable_error(error)
    about = {"job_fields": traces.job_fields(claim) | {"error_code": settlement.error_code}}
    log.warning("%s failed in attempt %d of %d and %s: %s", *values, exc_info=trace, extra=about)


def _encode_result(result: Any) -> str | None:
    """Encode a result as strictly as a payload: values changed by JSON are refused."""
    if result is None:
        return None
    try:
        return encode_strictly("result", result, max_bytes=RESULT_LIMIT)
    except InvalidRequest as refusal:
        raise _bad_result(f"the result cannot be stored as JSON: {refusal.message}") from refusal


def _bad_result(message: str) -> PermanentFailure:
    return PermanentFailure(message, code="ERR_BAD_RESULT")
