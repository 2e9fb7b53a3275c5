"""The executor: calls a handler and turns its result or error into one settlement for each job."""

from __future__ import annotations

import contextvars
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import msgspec

from penstock import clock, lifecycle, retry, traces
from penstock.errors import (
    InvalidRequest,
    JobError,
    LeaseLost,
    PermanentFailure,
    ServiceUnavailable,
    StateDamaged,
    StoreError,
)
from penstock.errors.stores import OUTAGES
from penstock.handlers.context import Context, Later, NotHandledHere, Registered, Registry, Wait
from penstock.job import DEFAULT_TIMEOUT_S, Claim, Settlement, Status
from penstock.strict_json import encode_strictly
from penstock.vocabulary import how_many
from penstock.worker import log_text
from penstock.worker.breaker import BreakerOpen, Breakers
from penstock.worker.log_text import error_text, loggable_error, traceback_text
from penstock.worker.outbox import Outbox
from penstock.worker.shared_state import ExecutingJob, SharedState
from penstock.worker.stopped import Stopped

RESULT_LIMIT = 1 << 20
FIRST_HANDLER_WAIT = timedelta(seconds=30)
LONGEST_HANDLER_WAIT = timedelta(minutes=5)
FIRST_STORE_WAIT = timedelta(seconds=1)
LONGEST_STORE_WAIT = timedelta(minutes=1)
FREE_OUTAGES = 20
"""Outages of a store that cost a job no retry: a job that causes them itself must end some day."""

FAILURE_CODES = {
    "ERR_NO_HANDLER": "No worker that claimed the job can run its type. The job waits, no retry spent.",
    "ERR_TOO_EARLY": "Enough work is in progress. The job waits, no retry spent, and continues by itself.",
    "ERR_BAD_RESULT": "The handler's result cannot be stored: not JSON, too large, or not one for each job.",
}

NOT_BEGUN = frozenset({"ERR_NO_HANDLER", "ERR_TOO_EARLY"})
"""Codes of releases before any work."""

log = logging.getLogger("penstock.worker")

# Keys in the progress of a job that is retried, so that the next worker finds them.
_ATTEMPTS = "no_handler"
_SERVICE = "service"
_OUTAGES = "outages"
TRACEBACK = "traceback"


# Bound here, out of reach of handlers that replace it in its module and do not restore it.
_monotonic = time.monotonic


def executing_job(claim: Claim) -> ExecutingJob:
    """The job as the watchdog sees it, with the time left if its timeout bounds earlier attempts as well."""
    timeout_s = claim.timeout_s
    if claim.progress_json is not None and lifecycle.bounds_whole_job(claim):
        passed = clock.now() - (lifecycle.first_start(claim) or clock.now())
        timeout_s = max(timeout_s - int(passed.total_seconds()), 0)
    return ExecutingJob(claim.queue_id, claim.claim_number, timeout_s)


def beside_context(breakers: Breakers, outbox: Outbox) -> Callable[[Claim], Context]:
    """Make the contexts of jobs in threads, which have no place for progress and no flag to stop."""

    def make(claim: Claim) -> Context:
        return Context(
            claim,
            report=lambda _: None,
            stop_requested=lambda: False,
            guard_service=breakers.calling,
            settle=outbox.settle_now,
            read_job=outbox.read_job,
        )

    return make


def context_factory(
    state: SharedState, number: int, breakers: Breakers, outbox: Outbox
) -> Callable[[int, Claim], Context]:
    """Make the contexts of one execution: progress and cancel flags go through the shared state."""

    def make(index: int, claim: Claim) -> Context:
        return Context(
            claim,
            report=lambda text: state.write_progress(number, index, text),
            stop_requested=lambda: state.stop_requested(number, index),
            guard_service=breakers.calling,
            settle=outbox.settle_now,
            mark=lambda mark: state.mark_file(number, mark, _monotonic()),
            read_job=outbox.read_job,
            index=index,
        )

    return make


class Executor:
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
        if began and lifecycle.bounds_whole_job(claims[0]):
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
        released_claim = lifecycle.released(claim, reason, delay=self._breakers.delay(error), code=error.code)
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
        if settlement.error_code in NOT_BEGUN
        else lifecycle.with_first_start(settlement, claim, started_at, now)
        for claim, settlement in zip(claims, settlements, strict=True)
    ]


def _not_handled(claim: Claim, reason: str) -> Settlement:
    """Release the job for a worker with a handler: no retry spent, each time with a longer delay."""
    tried = (claim.progress or {}).get(_ATTEMPTS, 0)
    wait = min(FIRST_HANDLER_WAIT * 2 ** min(tried, 10), LONGEST_HANDLER_WAIT)
    released_claim = lifecycle.released(claim, reason, delay=wait, code="ERR_NO_HANDLER")
    return _with_progress(released_claim, claim, _ATTEMPTS, tried + 1)


def _may_wait_for_store(claim: Claim) -> bool:
    """Return False for functions: they may not be repeatable, so their own number of retries decides."""
    return claim.item_type != "function" and (claim.progress or {}).get(_OUTAGES, 0) < FREE_OUTAGES


def _waits_for_store(claim: Claim, error: StoreError) -> Settlement:
    """Release the job until the store is back: no retry spent, each time with a longer delay."""
    before = (claim.progress or {}).get(_OUTAGES, 0)
    wait = min(FIRST_STORE_WAIT * 2**before, LONGEST_STORE_WAIT)
    log.warning(
        "%s waits for its store, next attempt in %d s: %s",
        log_text.job_text(claim),
        wait.total_seconds(),
        error_text(error),
        extra={"job_fields": traces.job_fields(claim) | {"error_code": error.code}},
    )
    reason = f"waits for the store: {error_text(error)}"
    released_claim = lifecycle.released(claim, reason, delay=wait, code=error.code)
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
        return lifecycle.waits(
            claim,
            answer.waiting_for,
            children=answer.children,
            progress_json=answer.progress_json,
            result_json=answer.result_json,
        )
    if isinstance(answer, Later):
        return lifecycle.released(claim, answer.reason, delay=answer.delay, code="ERR_TOO_EARLY")
    return lifecycle.done(claim, result_json=encode_result(answer))


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
    settlement = lifecycle.failed_attempt(
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
        return _with_progress(settlement, claim, TRACEBACK, traceback_text(error))
    return settlement


def _log_failure(claim: Claim, error: BaseException, settlement: Settlement) -> None:
    """Log the failure, with a traceback unless the handler raised the error to report a failure.

    The row keeps the text of the error only; the log is the place for the traceback.
    """
    attempt, most = claim.retry_count + 1, claim.max_retries + 1
    values = (log_text.job_text(claim), attempt, most, log_text.outcome_text(settlement), error_text(error))
    # An outage, or a job taken away, is no defect of the handler; the message says what happened.
    expected = isinstance(error, (JobError, InvalidRequest, *OUTAGES, LeaseLost))
    trace = None if expected else loggable_error(error)
    about = {"job_fields": traces.job_fields(claim) | {"error_code": settlement.error_code}}
    log.warning("%s failed in attempt %d of %d and %s: %s", *values, exc_info=trace, extra=about)


def encode_result(result: Any) -> str | None:
    """Encode a result as strictly as a payload: values changed by JSON are refused."""
    if result is None:
        return None
    try:
        return encode_strictly("result", result, max_bytes=RESULT_LIMIT)
    except InvalidRequest as refusal:
        raise _bad_result(f"the result cannot be stored as JSON: {refusal.message}") from refusal


def _bad_result(message: str) -> PermanentFailure:
    return PermanentFailure(message, code="ERR_BAD_RESULT")
