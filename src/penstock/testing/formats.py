"""Contract of a format: an extractor with its file type."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

import pytest

from penstock.errors import DocumentTooLarge, UnreadableDocument
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import extract, extractor
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, Page
from penstock.queue import retry


class FormatSample(NamedTuple):
    """A small file of a format. ``words``: a part of the text that its first page must have."""

    name: str
    data: bytes
    words: str


def _damaged(data: bytes, damage: str) -> bytes:
    middle = len(data) // 2
    return {
        "cut": data[:middle],
        "zeroed": data[:middle] + bytes(64) + data[middle + 64 :],
        "doubled": data + data,
        "flipped": bytes(byte ^ (7 if place % 5 == 0 else 0) for place, byte in enumerate(data)),
        "foreign": bytes(range(256)) * 4,
        "empty": b"",
    }[damage]


class FormatContract:
    """Promises of a format that is installed. A subclass has the fixture ``sample``, a ``FormatSample``."""

    def _read(self, sample: FormatSample, limits: ExtractLimits | None = None) -> ExtractedText:
        return extract(Content(sample.name, sample.data), limits)

    def test_the_name_decides_the_type(self, sample: FormatSample) -> None:
        found = file_types.by_name(sample.name)

        assert found is not None
        assert found == file_types.detect(sample.name, sample.data)
        assert not file_types.is_binary_name(sample.name)
        assert extractor(found.extractor).name == found.extractor
        assert extractor(found.extractor).version

    def test_the_text_is_read(self, sample: FormatSample) -> None:
        extracted = self._read(sample)

        assert sample.words in extracted.pages[0].text
        assert list(range(1, len(extracted.pages) + 1)) == [page.number for page in extracted.pages]
        assert extracted.page_count >= len(extracted.pages)
        assert file_types.by_name(sample.name) == extracted.file_type

    def test_the_same_bytes_give_the_same_pages(self, sample: FormatSample) -> None:
        assert self._read(sample) == self._read(sample)

    @pytest.mark.parametrize("damage", ["cut", "zeroed", "doubled", "flipped", "foreign", "empty"])
    def test_damage_gives_clean_text_or_a_reason(self, sample: FormatSample, damage: str) -> None:
        pages: tuple[Page, ...] = ()
        try:
            pages = self._read(sample._replace(data=_damaged(sample.data, damage))).pages
        except UnreadableDocument as error:
            reason = retry.classify(error)
        assert pages or reason.kind == "permanent"
        for page in pages:
            page.text.encode("utf-8")
            assert not {"\x00", "\r"} & set(page.text)
            assert unicodedata.is_normalized("NFC", page.text)

    def test_limits_hold(self, sample: FormatSample) -> None:
        with pytest.raises(DocumentTooLarge):
            self._read(sample, ExtractLimits(file_bytes=5, text_bytes=5))
        with pytest.raises(DocumentTooLarge):
            self._read(sample, ExtractLimits(text_chars=3))
