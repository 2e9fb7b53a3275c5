"""Turns: documents of one priority take turns, 32 tasks at a time. Pure."""

from __future__ import annotations

TASKS_PER_TURN = 32


def turns(first: int, given: int, head: int | None, count: int) -> tuple[int, list[int]]:
    """Turns for ``count`` more tasks of a document, and its first turn from now on.

    ``given``: tasks that have theirs. ``head``: the smallest turn waiting. A document whose earlier tasks are
    long done is moved up to the head: it neither waits for turns that passed nor overtakes.
    """
    if head is not None:
        first = max(first, head - given // TASKS_PER_TURN)
    return first, [first + (given + i) // TASKS_PER_TURN for i in range(count)]
