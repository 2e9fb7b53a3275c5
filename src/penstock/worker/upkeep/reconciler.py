"""Puts right what a crash between two transactions can leave: counts of parents, locks nobody passed on."""

from __future__ import annotations

import logging

from penstock.queue.protocol import Queue

log = logging.getLogger("penstock.upkeep")


class Reconciler:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def step(self) -> bool:
        repaired = self._queue.reconcile()
        if repaired:
            log.warning("%d rows were put right", repaired)
        return False
