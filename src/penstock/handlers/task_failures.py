"""Outcomes of tasks that failed, by the error: who is at fault, and whether a retry is spent."""

from __future__ import annotations

import random
from datetime import timedelta

from penstock import retry
from penstock.catalog.rules import outcomes
from penstock.catalog.rules.failures import MAX_MESSAGE
from penstock.catalog.values import Failure, FailureKind, Task, TaskOutcome
from penstock.errors import ServiceUnavailable, TokenLimitReached
from penstock.pipeline.budget import CallLimitReached
from penstock.pipeline.endpoint import BadAnswer
from penstock.vocabulary import with_remedy

SERVICE_PAUSE = timedelta(seconds=10)
"""Wait before a task is sent again to an endpoint that is down and names no time."""


def failed(task: Task, error: Exception) -> TaskOutcome:
    """Fail a task, for good or until the next attempt."""
    message = retry.error_summary(error)[:MAX_MESSAGE]
    return outcomes.failed_attempt(task, retry.classify(error), message, jitter=random.uniform(-1, 1))


def postponed(task: Task, error: ServiceUnavailable | CallLimitReached) -> TaskOutcome:
    """Wait as long as the service asks for, without spending a retry."""
    message = with_remedy(retry.error_summary(error), error.remedy)[:MAX_MESSAGE]
    failure = Failure(error.code, message, FailureKind.OUTAGE)
    return outcomes.postponed(task, failure, error.retry_after or SERVICE_PAUSE)


def failed_at_service(task: Task, error: Exception) -> TaskOutcome:
    """Fail or postpone a task after an error of a service."""
    if isinstance(error, ServiceUnavailable | CallLimitReached):
        return postponed(task, error)
    if isinstance(error, TokenLimitReached):
        # Not the fault of the text: a former version of the document stays.
        message = with_remedy(error.message, error.remedy)[:MAX_MESSAGE]
        return outcomes.failed(task, Failure(error.code, message, FailureKind.OUTAGE))
    if isinstance(error, BadAnswer) and task.retry_count >= task.max_retries:
        # The service works and does not take this text; the other texts of the document do not wait for it.
        return outcomes.failed(task, Failure(error.code, retry.error_summary(error)[:MAX_MESSAGE]))
    return failed(task, error)
