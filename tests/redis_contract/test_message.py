"""Messages of the contract: required fields and defaults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import InvalidMessage, UnsupportedSource
from penstock.redis_contract.lists import ServedList, rotate_lists, served_lists
from penstock.redis_contract.messages import Message, MessageOptions, decode, read

WHOLE: dict[str, Any] = {
    "job_id": "rag-policies_rag-1704882600-a7b2c3d4",
    "rag_id": "policies_rag",
    "source_path": "/app/data/sources/policies_rag/incoming/my_policy.pdf",
    "source_type": "pdf",
    "filename": "my_policy.pdf",
    "submitted_at": "2025-01-10T20:15:30.123456Z",
}


def test_what_is_left_out_has_the_contracts_defaults():
    message = read(WHOLE)

    assert ("cli", MessageOptions(), 0, 3) == (
        message.submitted_by,
        message.options,
        message.retry_count,
        message.max_retries,
    )
    assert (False, False, True) == (
        message.options.reindex,
        message.options.skip_validation,
        message.options.preserve_metadata,
    )
    nulls = dict.fromkeys(("submitted_by", "options", "retry_count", "max_retries"))
    assert message == read(WHOLE | nulls)


def test_unknown_fields_do_no_harm():
    assert read(WHOLE) == read(WHOLE | {"colour": "red", "options": {"speed": 9}})


def test_a_source_type_is_understood_in_any_case():
    assert "pdf" == read(WHOLE | {"source_type": "PDF"}).source_type


@pytest.mark.parametrize(
    ("retry_count", "max_retries", "left"), [(0, 3, 3), (2, 3, 1), (3, 3, 0), (5, 3, 0), (0, 0, 0)]
)
def test_retries_already_made_are_spent(retry_count: int, max_retries: int, left: int):
    assert left == read(WHOLE | {"retry_count": retry_count, "max_retries": max_retries}).retries_left


@pytest.mark.parametrize("field", sorted(WHOLE))
def test_each_required_field_is_missed_by_name(field: str):
    with pytest.raises(InvalidMessage, match=f"missing required field '{field}'"):
        read({key: value for key, value in WHOLE.items() if key != field})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_id", ""),
        ("job_id", "has blanks in it"),
        ("job_id", "x" * 200),
        ("job_id", 7),
        ("rag_id", None),
        ("source_path", "relative/path.pdf"),
        ("source_path", "/nul\0byte"),
        ("source_path", "/" + "x" * 256),
        ("source_path", "/a" * 400_000),
        ("source_type", 3),
        ("filename", "../../etc/passwd"),
        ("filename", ".."),
        ("filename", "x" * 300),
        ("submitted_at", "yesterday"),
        ("submitted_at", 1704882600),
        ("submitted_by", "cron"),
        ("options", []),
        ("options", {"reindex": "yes"}),
        ("retry_count", -1),
        ("retry_count", True),
        ("retry_count", 1.5),
        ("max_retries", -3),
        ("max_retries", 10**9),
        ("tags", "one"),
        ("metadata", []),
    ],
)
def test_a_bad_value_is_refused_with_its_field(field: str, value: object):
    with pytest.raises(InvalidMessage, match=f"field '{field}"):
        read(WHOLE | {field: value})


def test_an_unknown_type_names_those_that_are_known():
    with pytest.raises(UnsupportedSource, match="pdf, txt, md, docx, got 'exe'"):
        read(WHOLE | {"source_type": "exe"})


@pytest.mark.parametrize(
    "raw", [b"", b"not json", b"{", b'"text"', b"[1]", b"null", b"7", b"\xff\xfe{}", b"[" * 100_000]
)
def test_what_is_no_object_is_refused(raw: bytes):
    with pytest.raises(InvalidMessage, match=r"the message is no"):
        decode(raw)


@pytest.mark.parametrize(
    "at", ["2025-01-10T20:15:30Z", "2025-01-10T20:15:30.123+02:00", "2025-01-10T20:15:30"]
)
def test_times_are_read_leniently_and_kept_as_they_were(at: str):
    assert at == read(WHOLE | {"submitted_at": at}).submitted_at


def test_a_message_reads_back():
    assert isinstance(read(decode(json.dumps(WHOLE).encode())), Message)


def test_lists_of_one_priority_go_round_and_the_lowest_is_not_starved():
    lists = served_lists(["a", "b"])
    first, second = rotate_lists(lists, 0), rotate_lists(lists, 1)

    assert ServedList("rag:ingest:queue:high", 8) == first[0] == second[0]
    assert ServedList("rag:ingest:queue:low", 1) == first[-1] == second[-1]
    assert {one.key for one in first[1:-1]} == {
        "rag:ingest:queue",
        "rag:ingest:queue:normal",
        "rag:ingest:queue:a",
        "rag:ingest:queue:b",
        "rag:ingest:waiting:a",
        "rag:ingest:waiting:b",
    }
    assert first[1] != second[1]
    assert ServedList("rag:ingest:queue:low", 1) == rotate_lists(lists, 15)[0]
