"""The result of one fused settle and claim, and an exchange that is on its way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from penstock.job import Claim, ClaimRequest, Settlement, Status


class Exchange(msgspec.Struct, frozen=True):
    """Result of one fused settle and claim."""

    settled: list[Status | None]
    claims: list[Claim]


class SentExchange(Protocol):
    """An exchange that the store works on; its result is not read yet."""

    def finish(self) -> Exchange:
        """Wait for the result. After a ``StoreUnavailable`` it is unknown whether it was done."""


class NoSentExchanges:
    """Part of an engine that has the result of an exchange at once, or nothing to gain by waiting for it."""

    def send_exchange(
        self,
        settlements: Sequence[Settlement],  # noqa: ARG002
        request: ClaimRequest,  # noqa: ARG002
        *,
        now: datetime | None = None,  # noqa: ARG002
    ) -> SentExchange | None:
        return None
