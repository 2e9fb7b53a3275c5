"""The exception that ends a handler. Apart from ``process_guard``, which commands need not load."""

from __future__ import annotations


class Stopped(BaseException):
    """Raised in a handler when the supervisor stops the execution; the supervisor settles the jobs."""
