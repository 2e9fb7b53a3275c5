"""URLs and texts that are shown hold no password, however the URL is written."""

from __future__ import annotations

import pytest

from penstock.url_mask import masked_text, masked_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ada:s3cret@host:5432/db?x=1", "postgresql://ada:***@host:5432/db?x=1"),
        ("postgresql://ada:s3@cret@host/db", "postgresql://ada:***@host/db"),
        ("postgresql://ada:s3/cret@host/db", "postgresql://ada:***@host/db"),
        ("postgresql://ada:12/34@host/db", "postgresql://ada:***@host/db"),
        ("postgresql://ada:s3?cret@host/db", "postgresql://ada:***@host/db"),
        ("redis://:s3cret@host", "redis://:***@host"),
        (
            "postgresql://host/db?user=ada&password=s3cret&x=1",
            "postgresql://host/db?user=ada&password=***&x=1",
        ),
        ("postgresql://host/db?sslPassword=s3cret", "postgresql://host/db?sslPassword=***"),
        ("postgresql://ada@host/db", "postgresql://ada@host/db"),
        ("redis://host:6379/0?name=a@b", "redis://host:6379/0?name=a@b"),
        ("postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db"),
        ("sqlite:////srv/a:b@c/queue.db", "sqlite:////srv/a:b@c/queue.db"),
        ("jsonl://a/b:c@d", "jsonl://a/b:c@d"),
        ("memory://", "memory://"),
        ("no url", "no url"),
        ("postgresql://h1:5432,h2:5433/db", "postgresql://h1:5432,h2:5433/db"),
        ("postgresql://ada:s3cret/db", "postgresql://ada:***"),
        ("postgresql://ada:s3cret@", "postgresql://ada:***@"),
        ("postgresql://[ada:s3cret@host/db", "postgresql://[ada:***@host/db"),
        ("postgresql:ada:s3cret@host/db", "postgresql:ada:***@host/db"),
        ("postgresql:/ada:s3cret@host/db", "postgresql:/ada:***@host/db"),
        ("redis//ada:s3cret@host", "redis//ada:***@host"),
        (" redis://:s3cret@host", " redis://:***@host"),
        ("redis://ada:s3@x/cret@host", "redis://ada:***@host"),
        ("redis://ada:12?s3cret@host", "redis://ada:***@host"),
        ("redis://ada:12#s3cret@host", "redis://ada:***@host"),
        ("ada:s3cret@host", "ada:***@host"),
        ("s3cret@host", "***@host"),
        ("ada:s3cret", "ada:***"),
        ("host=db user=ada password=s3cret port=1", "host=db user=ada password=*** port=1"),
        ("host=db password='s3 cret'", "host=db password=***"),
        ("redis://host;password=s3cret", "redis://host;password=***"),
        ("redis://host/0?auth=s3cret", "redis://host/0?auth=***"),
        ("sqlite://ada:s3cret@host/x", "sqlite://ada:***@host/x"),
    ],
)
def test_passwords_in_urls_are_masked(url, expected):
    assert expected == masked_url(url)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('invalid token: "s3/cret"', 'invalid token: "***"'),
        ("no host 'cret@host'", "no host '***@host'"),
        ("redis://ada:s3/cret@host/0 is wrong", "redis://ada:***@host/0 is wrong"),
    ],
)
def test_what_a_driver_says_is_told_without_the_password(said, expected):
    assert expected == masked_text(said, "redis://ada:s3/cret@host/0")
