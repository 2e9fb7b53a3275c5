"""The oracle with jobs that pass few locks and slots on, which calls drawn one by one seldom do."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from penstock.queue.job import ClaimRequest, Scope
from penstock.queue.limits import Limit
from tests.conformance.oracle import Oracle
from tests.conformance.random_values import (
    CROWDED_SPECS,
    KEY_LIMITS,
    PLAIN_ENDINGS,
    REQUESTS,
    SCOPES,
    Ending,
    Spec,
)


class CrowdedOracle(Oracle):
    """Adds one rule to those of the oracle."""

    @rule(
        before=st.lists(CROWDED_SPECS, min_size=1, max_size=4),
        behind=st.lists(CROWDED_SPECS, max_size=3),
        exchanges=st.lists(st.tuples(st.lists(PLAIN_ENDINGS, max_size=3), REQUESTS), min_size=1, max_size=3),
        limit=st.none() | KEY_LIMITS,
        scope=st.none() | st.none() | SCOPES,
    )
    def crowd(
        self,
        before: list[Spec],
        behind: list[Spec],
        exchanges: list[tuple[list[Ending], ClaimRequest]],
        limit: Limit | None,
        scope: Scope | None,
    ) -> None:
        """Let jobs of few locks and limits pass them on in one step, perhaps around a pause."""
        if limit is not None:
            self.change_limit(limit, kept=True)
        self.add_many(before)
        self.claim(exchanges[0][1])
        if behind:
            self.add_many(behind)
        if scope is not None:
            self.pause(scope)
        for endings, request in exchanges:
            self.exchange(endings, request)
            if scope is not None:
                self.resume(scope, pick=0)
