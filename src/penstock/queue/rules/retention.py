"""Forgetting what ended long ago, a whole tree at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from penstock.job import Job, Status


class Prunable(Protocol):
    def ended_trees(
        self, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int
    ) -> Sequence[Job]:
        """Top-level rows (of one item type, or all) that ended before their status's time, oldest end
        first, no live descendant.
        """

    def tree(self, root_id: str, limit: int) -> list[str]:
        """Ids of the root's tree, descendants first and the root last."""

    def delete(self, ids: Sequence[str]) -> None: ...


def prune(rows: Prunable, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int) -> int:
    """Descendants go before their root, so a batch that ends in the middle of a tree is taken up again."""
    gone = 0
    for root in rows.ended_trees(ended_before, item_type, limit):
        ids = rows.tree(root.queue_id, limit - gone)
        rows.delete(ids)
        gone += len(ids)
        if gone >= limit:
            break
    return gone
