"""Store URLs: engines, paths and masked passwords."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidSetting
from penstock.store_url import StoreUrl


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
    assert expected == StoreUrl(url).masked


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('invalid token: "s3/cret"', 'invalid token: "***"'),
        ("no host 'cret@host'", "no host '***@host'"),
        ("redis://ada:s3/cret@host/0 is wrong", "redis://ada:***@host/0 is wrong"),
    ],
)
def test_what_a_driver_says_is_told_without_the_password(said, expected):
    assert expected == StoreUrl("redis://ada:s3/cret@host/0").mask_in(said)


@pytest.mark.parametrize(
    ("url", "engine", "is_file", "many_hosts"),
    [
        ("memory://", "memory", False, False),
        ("sqlite:///queue.db", "sqlite", True, False),
        ("jsonl://queue", "jsonl", True, False),
        ("postgresql://host/db", "postgres", False, True),
        ("postgres://host/db", "postgres", False, True),
        ("redis://host", "redis", False, True),
        ("rediss://host", "redis", False, True),
        ("unix:///run/redis.sock", None, False, False),
        ("sqlite:queue.db", None, False, False),
        ("redish://host", None, False, False),
        ("", None, False, False),
    ],
)
def test_the_scheme_names_the_engine(url, engine, is_file, many_hosts):
    store = StoreUrl(url)

    assert (engine, is_file, many_hosts) == (store.engine, store.is_file, store.many_hosts)


def test_a_redis_server_may_be_a_socket():
    urls = ["redis://host", "rediss://host", "unix:///run/redis.sock", "postgresql://host", "redis"]

    assert [True, True, True, False, False] == [StoreUrl(url).is_redis_server for url in urls]


def test_all_spellings_of_a_file_resolve_to_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path)
    sqlite = ["sqlite:///queue.db", f"sqlite:///{tmp_path}/queue.db", "sqlite:///~/queue.db"]
    jsonl = ["jsonl://queue", "jsonl://link/queue", f"jsonl://{tmp_path}/queue"]

    assert {f"sqlite:///{tmp_path}/queue.db"} == {StoreUrl(url).resolved for url in sqlite}
    assert {f"jsonl://{tmp_path}/queue"} == {StoreUrl(url).resolved for url in jsonl}
    assert "redis://:s3cret@host/0" == StoreUrl("redis://:s3cret@host/0").resolved


@pytest.mark.parametrize("url", ["sqlite://queue.db", "sqlite:///", "sqlite:///:memory:", "jsonl://"])
def test_a_url_without_a_file_is_refused(url):
    with pytest.raises(InvalidSetting):
        _ = StoreUrl(url).path


def test_the_repr_holds_no_password():
    assert "s3cret" not in repr(StoreUrl("redis://:s3cret@host"))
