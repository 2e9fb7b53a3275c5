"""Tokens counted in the catalog, by tenant, service, month and job."""

from datetime import UTC, datetime

from penstock.catalog.values import TokenUse


def test_tokens_add_up_by_job_and_are_read_by_tenant(catalog):
    first = TokenUse("acme", "endpoint", "2026-11", "job_1", 30)
    catalog.add_tokens([first, TokenUse("acme", "endpoint", "2026-11", "", 5)])
    catalog.add_tokens([first, TokenUse("other", "endpoint", "2026-11", "job_2", 7)])
    catalog.add_tokens([TokenUse("acme", "endpoint", "2026-10", "job_0", 100)])
    with catalog.snapshot() as snapshot:
        assert snapshot.tokens_used("acme", "endpoint", "2026-11") == 65
        assert snapshot.tokens_used("acme", "another", "2026-11") == 0
        assert snapshot.tokens_used("nobody", "endpoint", "2026-11") == 0
        assert [(use.job_id, use.tokens) for use in snapshot.token_uses("acme", "2026-11")] == [
            ("job_1", 60),
            ("", 5),
        ]
        assert [use.tenant_id for use in snapshot.token_uses(None, "2026-11")] == ["acme", "acme", "other"]


def test_counted_tokens_go_with_their_tenant_or_after_a_year(catalog):
    catalog.add_tokens(
        [TokenUse("acme", "endpoint", month, "", 1) for month in ("2025-10", "2025-11", "2026-11")]
    )
    catalog.add_tokens([TokenUse("other", "endpoint", "2026-11", "", 1)])
    catalog.sweep(datetime(2026, 11, 9, tzinfo=UTC))
    with catalog.snapshot() as snapshot:
        kept = [
            snapshot.tokens_used("acme", "endpoint", month) for month in ("2025-10", "2025-11", "2026-11")
        ]
    assert kept == [0, 1, 1]
    assert not catalog.forget("acme", limit=1)
    while not catalog.forget("acme", limit=1):
        pass
    with catalog.snapshot() as snapshot:
        assert [use.tenant_id for use in snapshot.token_uses(None, "2026-11")] == ["other"]
