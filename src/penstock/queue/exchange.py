"""The result of one fused settle and claim."""

from __future__ import annotations

import msgspec

from penstock.job import Claim, Status


class Exchange(msgspec.Struct, frozen=True):
    """Result of one fused settle and claim."""

    settled: list[Status | None]
    claims: list[Claim]
