"""Payload models, and the encoding of payloads."""

from __future__ import annotations

import datetime
import json
import math
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import errors, strict_json
from penstock.queue import payloads

HASH = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("item_type", "op", "payload"),
    [
        # As printed in the specification.
        (
            "content",
            "ingest",
            {"content": "text", "source_type": "clipboard", "main_tag": "a", "full_tag": "a/b/c"},
        ),
        (
            "file",
            "ingest",
            {"file_path": "/a/b", "file_type": "code", "file_hash": HASH, "size_bytes": 12345},
        ),
        (
            "folder",
            "scan",
            {
                "folder_path": "/a",
                "recursive": True,
                "recursive_depth": 10,
                "patterns": ["*.py", "*.rs"],
                "ignore_patterns": ["*.pyc", "__pycache__/*"],
            },
        ),
        (
            "project",
            "ingest",
            {"project_root": "/a", "git_remote": "https://h/x", "project_type": "mixed"},
        ),
        (
            "library",
            "update",
            {"library_name": "qdrant-client", "library_version": "1.15.0", "source_url": "https://h"},
        ),
        ("delete_tenant", "delete", {"tenant_id_to_delete": "t", "reason": "project_removed"}),
        ("delete_document", "delete", {"document_id": "d", "point_ids": ["p", "q"]}),
        ("rename", "update", {"old_path": "/a", "new_path": "/b", "is_folder": False}),
        (
            "function",
            "run",
            {"function_name": "f", "payload": {"x": [1]}, "entity_type": "worker", "entity_id": "1"},
        ),
        # Minimal payloads.
        ("content", "ingest", {"content": "x"}),
        ("content", "update", {"content": "x", "document_id": "d"}),
        ("content", "delete", {"document_id": "d"}),
        ("content", "delete", {"content": "x"}),
        ("file", "ingest", {"file_path": "/"}),
        ("file", "ingest", {"file_path": "/a", "size_bytes": 0, "chunk_size": 500, "chunk_overlap": 0}),
        ("folder", "ingest", {"folder_path": "/a", "recursive_depth": 0}),
        ("library", "delete", {"library_name": "x", "library_version": "1"}),
        ("delete_tenant", "delete", {"tenant_id_to_delete": "t"}),
        ("delete_document", "delete", {"document_id": "d"}),
        ("function", "run", {"function_name": "f", "payload": None}),
        # Unknown fields are accepted.
        ("file", "ingest", {"file_path": "/a", "origin": {"host": "h"}}),
        ("file", "ingest", MappingProxyType({"file_path": "/a"})),
    ],
)
def test_good_payloads_are_read(item_type, op, payload):
    checked = payloads.parse_payload(item_type, op, payload)

    assert type(checked) is payloads.MODELS[item_type]
    assert [] == [
        name
        for name, value in payload.items()
        if name in checked.__struct_fields__
        and value != (list(got) if isinstance(got := getattr(checked, name), tuple) else got)
    ]


@pytest.mark.parametrize(
    ("item_type", "op", "payload", "field", "expected"),
    [
        ("content", "ingest", {}, "content", "missing"),
        ("content", "ingest", {"content": " \n"}, "content", "blank"),
        ("content", "ingest", {"content": 5}, "content", "expected str"),
        ("content", "ingest", {"content": "x", "document_id": "d"}, "document_id", "update"),
        ("content", "ingest", {"content": "x", "source_type": "fax"}, "source_type", "mcp, clipboard"),
        ("content", "ingest", {"content": "x", "main_tag": ""}, "main_tag", "length >= 1"),
        ("content", "ingest", {"content": "x", "full_tag": "a//b"}, "full_tag", "a/b/c"),
        ("content", "ingest", {"content": "x", "full_tag": "/a"}, "full_tag", "a/b/c"),
        ("content", "ingest", {"content": "x", "full_tag": "a/"}, "full_tag", "a/b/c"),
        ("content", "update", {"content": "x"}, "document_id", "missing"),
        ("content", "update", {"document_id": "d"}, "content", "missing"),
        ("content", "delete", {}, "document_id", "needs"),
        ("content", "delete", {"content": "", "document_id": ""}, "document_id", "length >= 1"),
        ("file", "ingest", {}, "file_path", "missing"),
        ("file", "ingest", {"path": "/a"}, "file_path", "missing"),
        ("file", "ingest", {"file_path": None}, "file_path", "expected str"),
        ("file", "ingest", {"file_path": "/a", "file_hash": "0a" * 32}, "file_hash", "sha256:"),
        ("file", "ingest", {"file_path": "/a", "file_hash": HASH + "\n"}, "file_hash", "64"),
        ("file", "ingest", {"file_path": "/a", "file_hash": HASH.upper()}, "file_hash", "lower-case"),
        ("file", "ingest", {"file_path": "/a", "size_bytes": -1}, "size_bytes", ">= 0"),
        ("file", "ingest", {"file_path": "/a", "size_bytes": "1"}, "size_bytes", "expected int"),
        ("file", "ingest", {"file_path": "/a", "size_bytes": True}, "size_bytes", "expected int"),
        ("file", "ingest", {"file_path": "/a", "chunk_size": 15}, "chunk_size", ">= 16"),
        ("file", "ingest", {"file_path": "/a", "chunk_size": 8193}, "chunk_size", "<= 8192"),
        (
            "folder",
            "ingest",
            {"folder_path": "/", "chunk_size": 16, "chunk_overlap": 9},
            "chunk_overlap",
            "8",
        ),
        ("folder", "ingest", {"folder_path": "/a", "chunk_overlap": 257}, "chunk_overlap", "256"),
        ("content", "ingest", {"content": "x", "chunk_overlap": -1}, "chunk_overlap", ">= 0"),
        ("folder", "ingest", {"folder_path": "/a", "gate": "chapter"}, "gate", "one of page, document"),
        ("folder", "ingest", {"folder_path": "/a", "patterns": "*.py"}, "patterns", "array"),
        ("folder", "ingest", {"folder_path": "/a", "patterns": ["*", ""]}, "patterns[1]", "length >= 1"),
        ("folder", "ingest", {"folder_path": "/a", "recursive": "yes"}, "recursive", "expected bool"),
        ("folder", "ingest", {"folder_path": "/a", "recursive_depth": -1}, "recursive_depth", ">= 0"),
        ("folder", "ingest", {"folder_path": "/a", "include_code": 1}, "include_code", "expected bool"),
        ("project", "scan", {}, "project_root", "missing"),
        ("library", "ingest", {"library_name": "x"}, "library_version", "missing"),
        ("library", "ingest", {"library_name": "", "library_version": "1"}, "library_name", "letters"),
        ("library", "ingest", {"library_name": "a/b", "library_version": "1"}, "library_name", "letters"),
        ("library", "ingest", {"library_name": "x", "library_version": "../1"}, "library_version", "letters"),
        ("delete_tenant", "delete", {}, "tenant_id_to_delete", "missing"),
        ("delete_tenant", "delete", {"tenant_id_to_delete": "t", "reason": "x"}, "reason", "user_request"),
        ("delete_document", "delete", {"document_id": "d", "point_ids": [1]}, "point_ids[0]", "expected str"),
        ("rename", "update", {"old_path": "/a"}, "new_path", "missing"),
        ("rename", "update", {"old_path": "/a", "new_path": "/a/"}, "new_path", "another"),
        ("function", "run", {}, "function_name", "missing"),
        ("function", "run", {"function_name": "x" * 256}, "function_name", "<= 255"),
        ("function", "run", {"function_name": "f", "payload": [1]}, "payload", "object"),
        ("function", "run", {"function_name": "f", "payload": {1: 1}}, "payload", "keys must be strings"),
        ("function", "run", {"function_name": "f", "entity_id": "1"}, "entity_type", "both or neither"),
        (
            "function",
            "run",
            {"function_name": "f", "entity_type": "a:b", "entity_id": "1"},
            "entity_type",
            "without ':'",
        ),
    ],
)
def test_bad_payloads_are_refused_with_the_field_and_what_was_expected(
    item_type, op, payload, field, expected
):
    with pytest.raises(errors.InvalidPayload) as refusal:
        payloads.parse_payload(item_type, op, payload)

    assert refusal.value.message.startswith(f"{item_type} {op} payload: ")
    assert f"'{field}'" in refusal.value.message
    assert expected in refusal.value.message


@pytest.mark.parametrize("payload", [None, [], "text", {1: 2, "file_path": "/a"}])
def test_a_payload_that_is_no_object_is_refused(payload):
    with pytest.raises(errors.InvalidPayload):
        payloads.parse_payload("file", "ingest", payload)


@pytest.mark.parametrize(
    ("item_type", "op", "payload", "field"),
    [
        ("file", "ingest", {"file_path": "a/b"}, "file_path"),
        ("file", "ingest", {"file_path": ""}, "file_path"),
        ("file", "ingest", {"file_path": "~/a"}, "file_path"),
        ("folder", "ingest", {"folder_path": "."}, "folder_path"),
        ("project", "ingest", {"project_root": "../x"}, "project_root"),
        ("rename", "update", {"old_path": "a", "new_path": "/b"}, "old_path"),
        ("rename", "update", {"old_path": "/a", "new_path": "b"}, "new_path"),
    ],
)
def test_relative_paths_are_refused(item_type, op, payload, field):
    with pytest.raises(errors.RelativePath, match=f"'{field}'"):
        payloads.parse_payload(item_type, op, payload)


def test_the_pair_is_checked_before_the_payload():
    with pytest.raises(errors.UnsupportedOperation):
        payloads.parse_payload("file", "scan", {})


def encode(payload, max_bytes=10_000):
    return strict_json.encode_payload(payload, max_bytes=max_bytes)


def looped():
    payload: dict[str, object] = {"bad": object()}
    payload["again"] = [payload]
    return payload


def nested(depth):
    payload: dict[str, object] = {}
    for _ in range(depth):
        payload = {"a": payload}
    return payload


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, "{}"),
        ({"b": 1, "a": [None, True, 1.5, "ü"]}, '{"b":1,"a":[null,true,1.5,"ü"]}'),
        ({"t": (1, 2)}, '{"t":[1,2]}'),
        ({"t": (1, None)}, '{"t":[1,null]}'),
        ({"n": 2**70}, '{"n":1180591620717411303424}'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        # The six characters backslash u 0 0 0 0 are harmless text.
        ({"a": r"\u0000"}, r'{"a":"\\u0000"}'),
        ({r"\u0000": r"\\u0000"}, r'{"\\u0000":"\\\\u0000"}'),
        ({"emoji": "🌊"}, '{"emoji":"🌊"}'),
    ],
)
def test_payloads_become_compact_json_in_the_callers_order(payload, expected):
    assert expected == encode(payload)


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"a": [1, {"b": object()}]}, "payload.a[1].b"),
        ({"a": math.nan}, "payload.a"),
        ({"a": [None, math.inf]}, "payload.a[1]"),
        ({"a": (-math.inf,)}, "payload.a[0]"),
        ({"a": b"bytes"}, "payload.a: bytes"),
        ({"a": {1, 2}}, "payload.a: set"),
        ({"a": datetime.date(2024, 1, 1)}, "payload.a: date"),
        ({"a": {1: 2}}, "payload.a: keys"),
        ({None: 2}, "payload: keys"),
        ({"a": {1.5: 2}}, "payload.a: keys"),
        ({"n": 10**5000}, "payload"),
        (looped(), "payload.bad"),
        (nested(100_000), "nested too deeply"),
        ([1], "expected an object"),
        ("text", "expected an object"),
        (None, "expected an object"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(payload, place):
    with pytest.raises(errors.InvalidPayload) as refusal:
        encode(payload)

    assert place in refusal.value.message


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"a": "x\0y"}, "payload.a holds a NUL"),
        ({"a": ["\\\0"]}, "payload.a[0] holds a NUL"),
        ({"a": {"k\0": 1}}, "a key of payload.a holds a NUL"),
        ({"a": "\ud800"}, "payload.a holds a lone surrogate"),
        ({"a": "\ud83d\ude00"}, "payload.a holds a lone surrogate"),
        ({"\udfff": 1}, "a key of payload holds a lone surrogate"),
    ],
)
def test_text_no_store_can_keep_is_refused_with_its_place(payload, place):
    with pytest.raises(errors.InvalidText, match="holds") as refusal:
        encode(payload)

    assert place in refusal.value.message
    assert refusal.value.message.encode()


def test_the_limit_is_the_size_of_the_json_in_bytes():
    assert 12 == len(encode({"a": "ü" * 2}, max_bytes=12).encode())
    with pytest.raises(errors.PayloadTooLarge, match="12 bytes, the limit is 11"):
        encode({"a": "ü" * 2}, max_bytes=11)


def test_ten_megabytes_are_refused_by_name_and_number():
    with pytest.raises(errors.PayloadTooLarge, match=r"10,000,014 bytes, the limit is 4,194,304"):
        encode({"content": "x" * 10_000_000}, max_bytes=4 * 1024 * 1024)


# A few troublesome characters: all of Unicode would take a second to set up.
TEXT = st.text(st.sampled_from('au0\\"\n\u2028ü🌊'))
ROUGH_TEXT = st.text(st.sampled_from("au0\\\0\ud800🌊"))
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ROUGH_TEXT
    | st.binary()
    | st.dates()
    | st.builds(object),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(ROUGH_TEXT | st.integers(), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(ROUGH_TEXT, ANYTHING, max_size=4))
def test_a_payload_is_refused_with_a_typed_error_or_reads_back_equal(payload):
    try:
        encoded = encode(payload)
    except errors.InvalidRequest:
        return

    assert as_lists(payload) == json.loads(encoded)
    assert "\0" not in encoded
    assert encoded.encode()


def as_lists(value):
    if isinstance(value, dict):
        return {key: as_lists(inner) for key, inner in value.items()}
    return [as_lists(inner) for inner in value] if isinstance(value, list | tuple) else value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_every_json_object_is_accepted(payload):
    assert payload == json.loads(encode(payload, max_bytes=10**6))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b/", "/a/b"),
        ("//a", "/a"),
        ("///a//b", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/..", "/"),
        ("/", "/"),
    ],
)
def test_paths_are_normalised_as_text(path, expected):
    assert expected == payloads.normal_path(path)
