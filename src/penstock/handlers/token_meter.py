"""Calls to services with a count of tokens, by tenant and job, and with a limit for each tenant.

Local models charge nothing: for them nothing is counted, and no store is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import TokenUse
from penstock.errors import TokenLimitReached
from penstock.named_tuple import NamedTuple
from penstock.pipeline.embed.protocol import MeteredEmbedder
from penstock.pipeline.endpoint import TokenMeter
from penstock.pipeline.pipeline import Pipeline


class OwnedText(NamedTuple):
    """A text to be sent. The tokens are those of the tenant, and of the job if one waits for the text."""

    tenant_id: str
    job_id: str | None
    text: str


def embed_texts(catalog: Catalog, pipeline: Pipeline, texts: Sequence[OwnedText]) -> list[bytes]:
    """Embed texts and count their tokens. Raises ``TokenLimitReached`` before anything is sent."""
    embedder = pipeline.embedder
    if not isinstance(embedder, MeteredEmbedder):
        return pipeline.embed([text for _, _, text in texts])
    check_limit(catalog, embedder, {text.tenant_id for text in texts})
    try:
        return pipeline.embed([text for _, _, text in texts])
    finally:
        # After a failure in the middle, the batches before it were still paid for.
        tokens = embedder.take_tokens()
        if tokens:
            catalog.add_tokens(_shares(texts, embedder.service, _month(), tokens))


def check_limit(catalog: Catalog, meter: TokenMeter, tenants: set[str]) -> None:
    """Raise ``TokenLimitReached`` for a tenant who has used all tokens of this month."""
    limit = meter.token_limit
    if limit is None:
        return
    month = _month()
    with catalog.snapshot() as snapshot:
        for tenant_id in tenants:
            used = snapshot.tokens_used(tenant_id, meter.service, month)
            if used >= limit:
                raise TokenLimitReached(
                    f"tenant {tenant_id!r} has used {used:,} tokens of the {meter.service} in {month}; "
                    f"the limit is {limit:,}",
                    remedy=f"Raise {meter.token_variable}, or wait for the next month; then run "
                    "`penstock index PATH --retry-failed`.",
                )


def count_tokens(catalog: Catalog, meter: TokenMeter, used: Sequence[tuple[OwnedText, int]]) -> None:
    """Count the tokens of calls with one text each."""
    uses = Counter[tuple[str, str]]()
    for (tenant_id, job_id, _), tokens in used:
        uses[tenant_id, job_id or ""] += tokens
    if uses.total():
        month = _month()
        catalog.add_tokens(
            [TokenUse(tenant, meter.service, month, job, tokens) for (tenant, job), tokens in uses.items()]
        )


def _month() -> str:
    # The store's own month would cost a statement; hosts agree on the month but for a moment.
    return clock.format_time(clock.now())[:7]


def _shares(texts: Sequence[OwnedText], service: str, month: str, tokens: int) -> list[TokenUse]:
    """Divide the tokens of a call by the lengths of the texts. The shares add up to the total."""
    chars = Counter[tuple[str, str]]()
    for tenant_id, job_id, text in texts:
        chars[tenant_id, job_id or ""] += len(text)
    uses, left, left_chars = [], tokens, chars.total()
    for (tenant_id, job_id), count in chars.items():
        share = left * count // left_chars if left_chars else left
        left, left_chars = left - share, left_chars - count
        uses.append(TokenUse(tenant_id, service, month, job_id, share))
    return uses
