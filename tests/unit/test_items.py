"""Item types and operations, names, keys, locks and priorities."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import clock, errors
from penstock.queue import payloads

# The matrix of the specification (S0-22…30), with function/run added.
DRAWN = """
    content          ingest update delete .    .
    file             ingest update delete .    .
    folder           ingest .      delete scan .
    project          ingest .      delete scan .
    library          ingest update delete .    .
    delete_tenant    .      .      delete .    .
    delete_document  .      .      delete .    .
    rename           .      update .      .    .
    function         .      .      .      .    run
"""
ALLOWED = {row.split()[0]: set(row.split()[1:]) - {"."} for row in DRAWN.strip().splitlines()}
CELLS = list(itertools.product(ALLOWED, ("ingest", "update", "delete", "scan", "run")))


@pytest.mark.parametrize(("item_type", "op"), [cell for cell in CELLS if cell[1] in ALLOWED[cell[0]]])
def test_pairs_of_the_matrix_are_allowed(item_type, op):
    payloads.validate_pair(item_type, op)


@pytest.mark.parametrize(("item_type", "op"), [cell for cell in CELLS if cell[1] not in ALLOWED[cell[0]]])
def test_every_other_pair_is_refused_and_the_allowed_ones_are_named(item_type, op):
    with pytest.raises(errors.UnsupportedOperation) as refusal:
        payloads.validate_pair(item_type, op)

    assert all(allowed in refusal.value.message for allowed in ALLOWED[item_type])


def test_the_seed_has_18_allowed_pairs_and_14_refused_ones():
    of_the_seed = [cell for cell in CELLS if cell[0] != "function" and cell[1] != "run"]

    assert (32, 18) == (len(of_the_seed), sum(op in ALLOWED[item_type] for item_type, op in of_the_seed))


@pytest.mark.parametrize(
    ("item_type", "op", "error", "named"),
    [
        ("fodler", "ingest", errors.UnknownItemType, "did you mean 'folder'?"),
        ("FILE", "ingest", errors.UnknownItemType, "delete_document"),
        ("", "ingest", errors.UnknownItemType, "content"),
        (None, "ingest", errors.UnknownItemType, "content"),
        (["file"], "ingest", errors.UnknownItemType, "content"),
        ("file", "ingset", errors.UnknownOperation, "did you mean 'ingest'?"),
        ("file", "", errors.UnknownOperation, "update"),
        ("file", {}, errors.UnknownOperation, "scan"),
    ],
)
def test_unknown_words_are_refused_and_the_known_ones_named(item_type, op, error, named):
    with pytest.raises(error, match="known are") as refusal:
        payloads.validate_pair(item_type, op)

    assert named in refusal.value.message


FOLDER: dict[str, object] = {"folder_path": "/absolute/path/to/folder"}
PROJECT: dict[str, object] = {"project_root": "/absolute/path"}

# The hex is the output of sha256sum for the text in the comment.
GOLDEN: list[tuple[str, dict[str, object], str]] = [
    ("content", {"content": "The actual text content"}, "content:notes:b7339c1748006378"),
    ("content", {"content": "Grüße 🌊"}, "content:notes:6763aba617424e62"),
    ("file", {"file_path": "/absolute/path/to/file"}, "file:notes:d7d2cea9060abfcc"),
    ("folder", FOLDER, "folder:notes:c6e9cd51982233e4"),
    ("project", PROJECT, "project:notes:b8eb93a82f34fe53"),
    # qdrant-client:1.15.0
    (
        "library",
        {"library_name": "qdrant-client", "library_version": "1.15.0"},
        "library:notes:3b75bfc17d6723f5",
    ),
    ("delete_tenant", {"tenant_id_to_delete": "3fa9c1d2"}, "delete_tenant:notes:17996025992e3498"),
    ("delete_document", {"document_id": "doc-42"}, "delete_document:notes:6767023ae1fd50c6"),
    # /absolute/path/to/file: a document may be named by its path
    (
        "delete_document",
        {"document_id": "/absolute/path/to//file"},
        "delete_document:notes:d7d2cea9060abfcc",
    ),
    # /old/path:/new/path
    ("rename", {"old_path": "/old/path", "new_path": "/new/path"}, "rename:notes:2ccbb1e0f674c57f"),
    # /absolute/path/to/folder\n{"include_code":true,"patterns":["*.md","*.py"]}
    (
        "folder",
        {**FOLDER, "patterns": ["*.md", "*.py"], "include_code": True},
        "folder:notes:fe8a18de69cc409a",
    ),
    # /absolute/path/to/folder\n{"recursive":false}
    ("folder", {**FOLDER, "recursive": False}, "folder:notes:022cc988d17793e4"),
    # …\n{"chunk_overlap":50,"chunk_size":500,"ignore_patterns":["*.pyc"],"recursive_depth":10}
    (
        "folder",
        {
            **FOLDER,
            "ignore_patterns": ["*.pyc"],
            "recursive_depth": 10,
            "chunk_size": 500,
            "chunk_overlap": 50,
        },
        "folder:notes:0efb399e7021c834",
    ),
    # /absolute/path\n{"include_code":false}
    ("project", {**PROJECT, "include_code": False}, "project:notes:cc7dac00a6ddb83c"),
]


def key(item_type, payload, op=None):
    return payloads.idempotency_key(
        item_type, "notes", payloads.parse_payload(item_type, op or payloads.MATRIX[item_type][0], payload)
    )


@pytest.mark.parametrize(("item_type", "payload", "expected"), GOLDEN)
def test_keys_are_those_sha256sum_gives(item_type, payload, expected):
    assert expected == key(item_type, payload)


@pytest.mark.parametrize(
    ("item_type", "plain", "same"),
    [
        ("file", {"file_path": "/a/b"}, {"file_path": "/a/b/", "size_bytes": 3, "file_type": "code"}),
        ("file", {"file_path": "/a/b"}, {"file_path": "//a/./x/../b"}),
        ("folder", {"folder_path": "/a"}, {"folder_path": "/a/", "recursive": True, "recursive_depth": None}),
        ("folder", {"folder_path": "/a"}, {"folder_path": "/a", "patterns": [], "mood": "unknown fields"}),
        ("project", {"project_root": "/a"}, {"project_root": "/a", "git_remote": "git@h:x.git"}),
        ("content", {"content": "x"}, {"content": "x", "main_tag": "t", "source_type": "mcp"}),
    ],
)
def test_what_does_not_change_the_result_does_not_change_the_key(item_type, plain, same):
    assert key(item_type, plain) == key(item_type, same)


@pytest.mark.parametrize(
    ("item_type", "option"),
    [
        *itertools.product(
            ("content", "file", "folder", "project", "library"),
            ({"chunk_size": 100}, {"chunk_overlap": 10}),
        ),
        *itertools.product(
            ("folder", "project"),
            ({"recursive": False}, {"recursive_depth": 0}, {"patterns": ["*"]}, {"ignore_patterns": ["x"]}),
        ),
        ("folder", {"include_code": True}),
        ("project", {"include_code": False}),
    ],
)
def test_each_option_that_changes_the_result_changes_the_key(item_type, option):
    payload = next(payload for name, payload, _ in GOLDEN if name == item_type)

    assert key(item_type, payload) != key(item_type, {**payload, **option})


def test_ingest_and_delete_of_one_file_meet_in_one_key():
    payload = {"file_path": "/a/b"}

    assert key("file", payload, "ingest") == key("file", payload, "delete")


def test_a_note_is_known_by_its_id_when_it_has_one():
    by_id = key("content", {"document_id": "doc-42"}, "delete")

    assert by_id == key("content", {"document_id": "doc-42", "content": "new text"}, "update")
    assert by_id != key("content", {"content": "new text"}, "delete")


@settings(deadline=None)
@given(st.permutations(["folder_path", "patterns", "recursive", "recursive_depth", "chunk_size", "extra"]))
def test_the_order_of_fields_does_not_matter(names):
    payload = {"folder_path": "/a", "patterns": ["*.md"], "recursive": False, "recursive_depth": 2}
    payload |= {"chunk_size": 90, "extra": 1}

    assert key("folder", payload) == key("folder", {name: payload[name] for name in names})


def test_functions_have_a_key_only_from_their_caller():
    assert "function:notes:cb4da005e71e9149" == payloads.function_key("notes", "nightly-2024")
    with pytest.raises(TypeError):
        key("function", {"function_name": "plan"})


def test_calls_without_a_key_have_one_of_their_own() -> None:
    first, second = (payloads.own_key("notes", queue_id) for queue_id in clock.new_ids(2))
    assert re.fullmatch("function:notes:[0-9a-f]{16}", first)
    assert first != second


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\0b", None])
def test_a_callers_key_is_a_name(bad):
    with pytest.raises(errors.InvalidName, match="key"):
        payloads.function_key("notes", bad)


@pytest.mark.parametrize(
    ("item_type", "payload"),
    [
        ("content", {"content": "\ud800"}),
        ("file", {"file_path": "/\udc80"}),
        ("folder", {"folder_path": "/a", "patterns": ["\ud800"]}),
    ],
)
def test_a_lone_surrogate_has_no_key(item_type, payload):
    with pytest.raises(errors.InvalidText):
        key(item_type, payload)


@pytest.mark.parametrize(
    ("item_type", "op", "payload", "expected"),
    [
        ("file", "ingest", {"file_path": "/absolute/path/to/file/"}, "doc:45ede89109d40e1a"),
        ("file", "delete", {"file_path": "/absolute/path/to/file"}, "doc:45ede89109d40e1a"),
        ("delete_document", "delete", {"document_id": "/absolute/path/to/file"}, "doc:45ede89109d40e1a"),
        ("content", "ingest", {"content": "The actual text content"}, "doc:168fdf78df42e9d4"),
        ("content", "delete", {"document_id": "doc-42"}, "doc:faeca48df13aab65"),
        ("delete_document", "delete", {"document_id": "doc-42"}, "doc:faeca48df13aab65"),
        ("rename", "update", {"old_path": "/old/path", "new_path": "/new/path"}, "doc:749157b865f1fb66"),
        (
            "function",
            "run",
            {"function_name": "plan", "entity_type": "planner", "entity_id": "a:1"},
            "entity:c9bb51520407a64b",
        ),
        ("function", "run", {"function_name": "plan"}, None),
        ("folder", "ingest", FOLDER, None),
        ("project", "scan", PROJECT, None),
        ("library", "ingest", {"library_name": "x", "library_version": "1"}, None),
        ("delete_tenant", "delete", {"tenant_id_to_delete": "t"}, None),
    ],
)
def test_jobs_on_one_document_share_a_lock(item_type, op, payload, expected):
    checked = payloads.parse_payload(item_type, op, payload)

    assert expected == payloads.lock_key(checked, tenant_id="acme", branch="main", collection="notes")


def test_tenants_have_locks_of_their_own_for_entities_of_the_same_name():
    def lock(tenant_id, entity_type="planner", entity_id="a:1"):
        given = {"function_name": "plan", "entity_type": entity_type, "entity_id": entity_id}
        payload = payloads.parse_payload("function", "run", given)
        return payloads.lock_key(payload, tenant_id=tenant_id, branch="main", collection="notes")

    assert "entity:planner:a:1" == lock("default")
    assert 4 == len({lock("default"), lock("acme"), lock("bolt"), lock("acme", "worker")})


@pytest.mark.parametrize("other", [{"tenant_id": "b"}, {"branch": "b"}, {"collection": "b"}])
def test_the_same_path_elsewhere_is_another_document(other):
    place = {"tenant_id": "a", "branch": "a", "collection": "a"}
    payload = payloads.parse_payload("file", "ingest", {"file_path": "/a"})

    assert payloads.lock_key(payload, **place) != payloads.lock_key(payload, **{**place, **other})


@pytest.mark.parametrize(
    ("expected", "door", "item_type", "op"),
    [
        (10, "mcp", "project", "ingest"),
        (9, "cli", "folder", "ingest"),
        (8, "mcp", "content", "ingest"),
        (8, "cli", "content", "update"),
        (8, "http", "content", "delete"),
        (7, "active_project", "file", "update"),
        (5, "http", "file", "ingest"),
        (5, "redis", "file", "ingest"),
        (5, "library", "folder", "ingest"),
        (5, "watcher", "file", "update"),
        (5, "library", "function", "run"),
        (5, "mcp", "function", "run"),
        (3, "cli", "folder", "scan"),
        (3, "mcp", "project", "scan"),
        (1, "cli", "library", "ingest"),
        (1, "http", "library", "update"),
        (9, "cli", "library", "delete"),
        (9, "cli", "delete_tenant", "delete"),
        (0, "bulk", "file", "ingest"),
        (0, "bulk", "content", "ingest"),
    ],
)
def test_priority_follows_what_it_is_and_who_asks(expected, door, item_type, op):
    assert expected == payloads.default_priority(door, item_type, op)


@pytest.mark.parametrize(("parent", "expected"), [(10, 9), (5, 4), (1, 0), (0, 0)])
def test_a_child_is_one_below_its_parent(parent, expected):
    assert expected == payloads.child_priority(parent)


@pytest.mark.parametrize("priority", [0, 5, 10])
def test_priorities_from_0_to_10_are_accepted(priority):
    assert priority == payloads.validate_priority(priority)


@pytest.mark.parametrize("priority", [-1, 11, True, 5.0, "5", None, float("nan")])
def test_other_priorities_are_refused(priority):
    with pytest.raises(errors.InvalidPriority, match="0 to 10"):
        payloads.validate_priority(priority)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tenant_id", "3fa9c1d2"),
        ("tenant_id", "Größe & Söhne"),
        ("tenant_id", "a:b"),
        ("collection", "x" * 255),
        ("branch", "feature/long-name"),
        ("worker_id", "host-1:4242"),
        ("job_id", "rag-docs-1700000000-0a1b2c3d"),
        ("job_id", "x" * 128),
    ],
)
def test_good_names_are_kept_as_they_are(kind, name):
    assert name == payloads.validate_name(kind, name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tenant_id", ""),
        ("tenant_id", "x" * 256),
        ("tenant_id", "*"),
        ("collection", "*"),
        ("tenant_id", None),
        ("tenant_id", 7),
        ("tenant_id", "a\0b"),
        ("tenant_id", "a\nb"),
        ("tenant_id", "a\x1b[31m"),
        ("tenant_id", "\udc80"),
        ("tenant_id", " a"),
        ("branch", "a "),
        ("collection", "a:b"),
        ("job_id", "-a"),
        ("job_id", "a b"),
        ("job_id", "ä"),
        ("job_id", "x" * 129),
        ("job_id", "a\n"),
    ],
)
def test_bad_names_are_refused_by_kind_and_can_be_printed(kind, name):
    with pytest.raises(errors.InvalidName, match=kind) as refusal:
        payloads.validate_name(kind, name)

    assert refusal.value.message.encode()
