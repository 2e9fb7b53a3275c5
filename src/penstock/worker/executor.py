"""One call of a handler: its answer, whatever it is, becomes a settlement for each of its jobs."""

from __future__ import annotations

import contextvars
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import msgspec

from penstock import lifecycle, retry
from penstock.errors import InvalidRequest, JobError, PermanentFailure, ServiceUnavailable
from penstock.handlers.context import Context
from penstock.handlers.registry import Later, NotHandledHere, Registered, Registry, Wait
from penstock.job import Claim, Settlement, Status
from penstock.payloads import encode_strictly
from penstock.worker import log_text
from penstock.worker.breaker import BreakerOpen, Breakers
from penstock.worker.error_text import describe, loggable, where
from penstock.worker.process_guard import Stopped

RESULT_LIMIT = 1 << 20
FIRST_HANDLER_WAIT = timedelta(seconds=30)
LONGEST_HANDLER_WAIT = timedelta(minutes=5)

FAILURE_CODES = {
    "ERR_NO_HANDLER": "No worker that took the job can run its type. It waits, unspent, for one that can.",
    "ERR_TOO_EARLY": "Enough is in hand already. The job waits, unspent, and goes on by itself.",
    "ERR_BAD_RESULT": "The handler's answer cannot be kept: not JSON, too large, or not one for each job.",
}

log = logging.getLogger("penstock.worker")

# Kept among a job's progress between attempts, where other workers find them too.
_TRIED = "no_handler"
_NEEDS = "service"
TRACEBACK = "traceback"


class Executor:
    def __init__(self, registry: Registry, breakers: Breakers) -> None:
        self._registry = registry
        self._breakers = breakers

    def batch_size(self, claim: Claim) -> int:
        """How many jobs like this one go into one call. A crash suspect goes alone."""
        handler = self._registry.find(claim.item_type, claim.op)
        return 1 if handler is None or claim.lost_count else max(handler.batch, 1)

    def run(self, claims: Sequence[Claim], make_context: Callable[[int, Claim], Context]) -> list[Settlement]:
        handler = self._registry.find(claims[0].item_type, claims[0].op)
        if handler is None:
            return [self._without_handler(claim) for claim in claims]
        answers: Sequence[object]
        try:
            contexts = [make_context(index, claim) for index, claim in enumerate(claims)]
            with self._needed(claims[0]):
                answers = _answers(handler, contexts)
        except Stopped:
            raise
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, SystemExit too
            answers = [error] * len(claims)
        return [
            self._settlement(claim, answer, handler) for claim, answer in zip(claims, answers, strict=True)
        ]

    def _needed(self, claim: Claim) -> AbstractContextManager[None]:
        """A job that met a service that was down is not tried while it still is."""
        needs = (claim.progress or {}).get(_NEEDS) if claim.progress_json else None
        return self._breakers.calling(needs) if isinstance(needs, str) else nullcontext()

    def _settlement(self, claim: Claim, answer: object, handler: Registered) -> Settlement:
        try:
            if not isinstance(answer, BaseException):
                return _succeeded(claim, answer)
            error = answer
        except BaseException as refusal:  # noqa: BLE001 - encoding runs the answer's own code
            error = refusal
        if isinstance(error, ServiceUnavailable):
            return self._waits_for_service(claim, error)
        if isinstance(error, NotHandledHere):
            return _not_handled(claim, str(error))
        return failure(claim, error, handler)

    def _waits_for_service(self, claim: Claim, error: ServiceUnavailable) -> Settlement:
        why = "it was down when last asked" if isinstance(error, BreakerOpen) else describe(error)
        reason = f"waits for {error.service}: {why}"
        given_back = lifecycle.released(claim, reason, delay=self._breakers.delay(error), code=error.code)
        return _remembering(given_back, claim, _NEEDS, error.service)

    def _without_handler(self, claim: Claim) -> Settlement:
        known = ", ".join(self._registry.pairs()) or "nothing"
        return _not_handled(
            claim, f"no handler for {claim.item_type}/{claim.op} here (this worker runs {known})"
        )


def _not_handled(claim: Claim, reason: str) -> Settlement:
    """Another worker may know it: given back unspent, each time for longer, never failed."""
    tried = (claim.progress or {}).get(_TRIED, 0)
    wait = min(FIRST_HANDLER_WAIT * 2 ** min(tried, 10), LONGEST_HANDLER_WAIT)
    given_back = lifecycle.released(claim, reason, delay=wait, code="ERR_NO_HANDLER")
    return _remembering(given_back, claim, _TRIED, tried + 1)


def _answers(handler: Registered, contexts: list[Context]) -> Sequence[object]:
    # Context variables that it sets, such as the context of decimals, are gone with its job.
    run = contextvars.copy_context().run
    if not handler.batch:
        return [run(handler.call, contexts[0])]
    answers = run(handler.call, contexts)
    if not isinstance(answers, Sequence) or isinstance(answers, str | bytes):
        raise _bad_result(f"the batch handler answered {type(answers).__name__} instead of a list")
    if len(answers) != len(contexts):
        raise _bad_result(f"the batch handler answered {len(answers)} results for {len(contexts)} jobs")
    return answers


def _succeeded(claim: Claim, answer: object) -> Settlement:
    if isinstance(answer, Wait):
        return lifecycle.waits(
            claim, answer.waiting_for, children=answer.children, progress_json=answer.progress_json
        )
    if isinstance(answer, Later):
        return lifecycle.released(claim, answer.reason, delay=answer.delay, code="ERR_TOO_EARLY")
    return lifecycle.done(claim, result_json=encode_result(answer))


def _remembering(given_back: Settlement, claim: Claim, key: str, value: object) -> Settlement:
    """Beside what the handler keeps there: it may say where to resume."""
    progress = msgspec.json.encode((claim.progress or {}) | {key: value}).decode()
    return msgspec.structs.replace(given_back, progress_json=progress)


def failure(claim: Claim, error: BaseException, handler: Registered) -> Settlement:
    try:
        classified, schedule = retry.classify(error), handler.backoff_of(claim)
    except Exception:  # noqa: BLE001 - both run code of the application's
        classified, schedule = retry.Classification("transient", "ERR_UNKNOWN"), retry.JOB_BACKOFF
    settlement = lifecycle.failed_attempt(
        claim,
        classified,
        describe(error),
        schedule=schedule,
        jitter=random.uniform(-1, 1),
    )
    if classified.kind != "cancelled":
        _tell(claim, error, settlement)
    expected = isinstance(error, JobError | InvalidRequest)
    retried = settlement.status is Status.PENDING and not expected
    # The error record of the Redis contract has a traceback, whatever was raised.
    if retried or (settlement.status is Status.FAILED and claim.submitted_by == "redis"):
        return _remembering(settlement, claim, TRACEBACK, where(error))
    return settlement


def _tell(claim: Claim, error: BaseException, settlement: Settlement) -> None:
    """The row keeps the error's text; where it was raised stands only here. What a handler raised to say that
    it failed needs no such place.
    """
    attempt, most = claim.retry_count + 1, claim.max_retries + 1
    said = (log_text.named(claim), attempt, most, log_text.outcome(settlement), describe(error))
    trace = None if isinstance(error, JobError | InvalidRequest) else loggable(error)
    log.warning("%s failed in attempt %d of %d and %s: %s", *said, exc_info=trace)


def encode_result(result: Any) -> str | None:
    """As strictly as payloads are: what would come back as something else is refused, not changed."""
    if result is None:
        return None
    try:
        return encode_strictly("result", result, max_bytes=RESULT_LIMIT)
    except InvalidRequest as refusal:
        raise _bad_result(f"what the handler returned cannot be kept as JSON: {refusal.message}") from refusal


def _bad_result(message: str) -> PermanentFailure:
    return PermanentFailure(message, code="ERR_BAD_RESULT")
