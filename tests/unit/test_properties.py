"""Properties of documents in the forms that filters compare."""

from __future__ import annotations

import pytest

from penstock.catalog.values import (
    MAX_WARNINGS,
    NOTHING_STORED,
    StoredProperties,
    decode,
    encode,
    folded,
    time_key,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01", "2024-05-01T00:00:00"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00"),
        ("2024-05-01T00:30:00.5+02:00", "2024-04-30T22:30:00"),
        ("2024", "2024-01-01T00:00:00"),
        ("2024-05", "2024-05-01T00:00:00"),
        ("20240501", "2024-05-01T00:00:00"),
        ("0001-01-01T00:00:00+14:00", ""),
        ("in spring", ""),
        ("", ""),
    ],
)
def test_times_compare_as_text_in_utc(text: str, expected: str):
    assert expected == time_key(text)


def test_letters_are_folded():
    assert folded("Ｚoë  MÜLLER\n") == folded("zoe müller") == "zoe muller"
    assert "ß".casefold() == folded("ẞ")


def test_a_document_without_properties_costs_no_column():
    assert NOTHING_STORED == encode(StoredProperties(), "")
    assert StoredProperties() == decode(NOTHING_STORED) == decode(encode(StoredProperties(), "a title"))


def test_warnings_are_kept_once_and_not_without_limit():
    many = StoredProperties(warnings=tuple(f"page {number % 100}" for number in range(200)))

    kept = decode(encode(many, "")).warnings

    assert (MAX_WARNINGS, "page 0", "and 81 more warnings") == (len(kept), kept[0], kept[-1])
