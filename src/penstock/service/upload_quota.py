"""Quota of the files that one tenant has uploaded, of all kinds together, counted from the files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from penstock.errors import UploadQuotaReached


class Counted(Protocol):
    """A kind of uploaded files, which knows their size."""

    def stored_bytes(self, tenant_id: str) -> int:
        """Bytes of all stored files of a tenant."""


class UploadQuota:
    """The quota of each tenant of one server; None is no limit.

    ``lock`` is held from the count to the end of the change: two uploads at a time would each find the place
    that is left for one.
    """

    def __init__(self, most_bytes: int | None) -> None:
        self.most_bytes = most_bytes
        self.lock = threading.Lock()
        self._kinds: list[Counted] = []

    def add(self, kind: Counted) -> None:
        """Count files of this kind as well."""
        self._kinds.append(kind)

    def refuse(self, tenant_id: str, more: int, *, own: Counted, count: Callable[[], int]) -> None:
        """Refuse files that would exceed the quota. ``count``: bytes of the files of the caller's own kind.

        What makes the files of a tenant smaller is never refused.
        """
        if self.most_bytes is None or more <= 0:
            return
        others = sum(kind.stored_bytes(tenant_id) for kind in self._kinds if kind is not own)
        wanted = count() + others + more
        if wanted > self.most_bytes:
            raise UploadQuotaReached(
                f"the uploads of tenant {tenant_id[:80]!r} would have {wanted:,} bytes, and the quota is "
                f"{self.most_bytes:,}"
            )
