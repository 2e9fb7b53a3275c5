"""Orders of rows: within one priority, over all priorities, and by turn from the last."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from penstock.job import Job

Order: TypeAlias = tuple[int, datetime, str]
"""Claim order within one priority: turn, created_at, queue_id."""


def order(job: Job) -> Order:
    return (job.turn, job.created_at, job.queue_id)


def claim_order(job: Job) -> tuple[int, Order]:
    """Over all priorities."""
    return (-job.priority, order(job))


def place(job: Job) -> tuple[int, int, datetime, str]:
    return (-job.priority, job.turn, job.created_at, job.queue_id)


def backwards(job: Job) -> int:
    return -job.turn
