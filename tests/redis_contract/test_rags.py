"""The configuration of RAGs, and which paths are theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidRags, OutsideRag, UnknownRag
from penstock.redis_contract import rags
from penstock.redis_contract.rags import Rags

WHOLE = """
redis:
  url: "redis://redis:6379/0"
  password: null
  db: 0
sources: sources
rags:
  policies_rag:
  faq_rag:
    collection: faq
    tenant: acme
    folders: [shared, /srv/faq]
  outside_rag:
    inbox: null
    folders: [shared]
"""


def loaded(place: Path, text: str) -> Rags:
    path = place / "rags.yaml"
    path.write_text(text)
    return rags.load(path)


def test_a_whole_configuration(tmp_path: Path):
    found = loaded(tmp_path, WHOLE)

    assert "redis://redis:6379/0" == found.redis_url
    policies, faq, outside = (found.get(name) for name in ("policies_rag", "faq_rag", "outside_rag"))
    assert ("policies_rag", None, str(tmp_path / "sources/policies_rag"), ()) == (
        policies.collection,
        policies.tenant_id,
        policies.inbox,
        policies.folders,
    )
    assert ("faq", "acme", (str(tmp_path / "shared"), "/srv/faq")) == (
        faq.collection,
        faq.tenant_id,
        faq.folders,
    )
    assert outside.inbox is None


@pytest.mark.parametrize(
    ("redis", "url"),
    [
        ("{url: 'redis://h:1', password: 'p@ss', db: 3}", "redis://:p%40ss@h:1/3"),
        ("{url: 'redis://u:x@h:1/2', password: other, db: 3}", "redis://u:x@h:1/2"),
        ("{url: 'unix:///run/redis.sock?db=2', db: 3}", "unix:///run/redis.sock?db=2"),
    ],
)
def test_password_and_database_go_where_the_url_has_none(tmp_path: Path, redis: str, url: str):
    assert url == loaded(tmp_path, f"redis: {redis}\nrags: {{a: {{folders: [x]}}}}").redis_url


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rags: [", "not YAML"),
        ("", "expected a mapping"),
        ("- a", "expected a mapping"),
        ("rags: {}", "names no RAG"),
        ("rags: {a: }", "neither an inbox nor folders"),
        ("rags: {high: {inbox: x}}", "rags.high: a RAG id"),
        ("rags: {dead-letter: {inbox: x}}", "a RAG id"),
        ("rags: {'a b': {inbox: x}}", "a RAG id"),
        ("rags: {a: {inbox: x, colour: red}}", "rags.a has 'colour'"),
        ("rags: {a: {inbox: 7}}", "rags.a.inbox: expected a directory"),
        ("rags: {a: {folders: x}}", "rags.a.folders: expected a list"),
        ("rags: {a: {folders: [null]}}", "expected directories"),
        ("rags: {a: {inbox: x, collection: 'a:b'}}", "collection must not contain"),
        ("rags: {a: text}", "expected a mapping, got str"),
        ("redis: {url: 'http://x'}\nrags: {a: {inbox: x}}", "redis.url"),
        ("redis: {url: 'redis://[::1'}\nrags: {a: {inbox: x}}", "redis.url"),
        ("redis: {url: 'redis://h', db: x}\nrags: {a: {inbox: x}}", "redis.db"),
        ("redis: {url: 'redis://h', db: 1.5}\nrags: {a: {inbox: x}}", "redis.db"),
        ("redis: {url: 'redis://h', password: [x]}\nrags: {a: {inbox: x}}", "redis.password"),
        ("redis: text\nrags: {a: {inbox: x}}", "redis: expected"),
        ("queues: 1\nrags: {a: {inbox: x}}", "the file has 'queues'"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, text: str, said: str):
    with pytest.raises(InvalidRags) as refusal:
        loaded(tmp_path, text)

    assert f"{tmp_path}/rags.yaml: " in refusal.value.message
    assert said in refusal.value.message


@pytest.mark.parametrize(
    "text", ["redis: {{url: 'redis://x:{0}@h'\n password: 1\n", "redis: {{password: {0} ]\n"]
)
def test_a_file_that_is_no_yaml_is_named_by_its_line_without_what_is_there(tmp_path: Path, text: str):
    with pytest.raises(InvalidRags, match=r"not YAML: .*\(line \d+, column \d+\)") as refusal:
        loaded(tmp_path, text.format("s3cret"))

    assert "s3cret" not in refusal.value.message


def test_a_file_that_is_not_there_and_a_rag_that_is_not_known(tmp_path: Path):
    with pytest.raises(InvalidRags, match="No such file"):
        rags.load(tmp_path / "none.yaml")
    with pytest.raises(UnknownRag, match="known are faq_rag, outside_rag, policies_rag"):
        loaded(tmp_path, WHOLE).get("other")


def test_a_file_of_the_inbox_is_known_by_where_it_will_lie(tmp_path: Path):
    rag = loaded(tmp_path, WHOLE).get("policies_rag")
    inbox = tmp_path / "sources/policies_rag"

    plain = rag.place(f"{inbox}/incoming/a.pdf", "a.pdf")
    deep = rag.place(f"{inbox}/incoming/2025/tmp-1", "b.pdf")

    assert (f"{inbox}/incoming/a.pdf", f"{inbox}/processed/a.pdf", True) == (
        plain.read_from,
        plain.known_as,
        plain.managed,
    )
    assert (f"{inbox}/incoming/2025/tmp-1", f"{inbox}/processed/2025/b.pdf") == (
        deep.read_from,
        deep.known_as,
    )


def test_a_file_elsewhere_is_known_by_its_own_path(tmp_path: Path):
    place = loaded(tmp_path, WHOLE).get("faq_rag").place(f"{tmp_path}/shared/x/../a.md", "other.md")

    assert (f"{tmp_path}/shared/a.md", f"{tmp_path}/shared/a.md", False) == (
        place.read_from,
        place.known_as,
        place.managed,
    )


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{0}/shared", "{0}/shared/../secret", "{0}/sharedfoo/a", "{0}/shared/link/secret"]
)
def test_paths_outside_are_refused_also_through_links(tmp_path: Path, path: str):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "link").symlink_to("/etc")

    with pytest.raises(OutsideRag, match="lies in no folder of RAG 'outside_rag'"):
        loaded(tmp_path, WHOLE).get("outside_rag").place(path.format(tmp_path), "a")
