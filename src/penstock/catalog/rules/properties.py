"""Properties of a document: facts stated by the source, and warnings of the extractor.

They are stored as JSON, with the filtered ones a second time in the form in which filters compare them. No
store has to fold letters or to convert times by itself, so that a filter means the same in all of them.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

import msgspec

MAX_CHARS = 500
"""Maximum length of a property or a warning."""
MAX_WARNINGS = 20
NOTHING_STORED = "{}"


class Properties(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about a document, as far as the source states them. Dates are ISO 8601."""

    author: str = ""
    created: str = ""
    modified: str = ""
    language: str = ""
    encoding: str = ""
    """Encoding of the bytes, where it is not UTF-8."""
    replaced: int = 0
    """Number of characters that could not be decoded and were replaced."""


class StoredProperties(Properties, frozen=True, kw_only=True, omit_defaults=True):
    """Properties as the catalog keeps them, with the warnings of the reading."""

    media_type: str = ""
    """Type of the content, where the name stands for another one."""
    warnings: tuple[str, ...] = ()
    """Losses and guesses, as messages for people."""
    url: str = ""
    """Address of a web page, or path of a page of a library."""
    anchors: dict[str, str] = {}
    """Anchors of a web page by path of headings."""

    def address(self, heading_path: str) -> str:
        """The address of a part of a web page: with the anchor of its heading, or of one above."""
        while heading_path and heading_path not in self.anchors:
            heading_path = heading_path.rpartition(" > ")[0]
        anchor = self.anchors.get(heading_path, "")
        return f"{self.url}#{anchor}" if self.url and anchor else self.url


class _Row(StoredProperties, frozen=True, kw_only=True, omit_defaults=True):
    """The column: the properties, and the keys for filters."""

    author_folded: str = ""
    title_folded: str = ""
    language_folded: str = ""
    created_at: str = ""


def encode(properties: StoredProperties, title: str) -> str:
    """The column for the properties and the title of a document."""
    if not title and properties == StoredProperties():
        return NOTHING_STORED
    row = _Row(
        author=_line(properties.author),
        created=_line(properties.created),
        modified=_line(properties.modified),
        language=_line(properties.language),
        encoding=_line(properties.encoding),
        replaced=properties.replaced,
        media_type=_line(properties.media_type),
        warnings=shortened(properties.warnings),
        url=properties.url,
        anchors=properties.anchors,
        author_folded=folded(properties.author),
        title_folded=folded(title),
        language_folded=language_key(properties.language),
        created_at=time_key(properties.created),
    )
    return msgspec.json.encode(row).decode()


_NOTHING = StoredProperties()


def decode(column: str) -> StoredProperties:
    # A decoder of the module would evaluate the annotations in each command.
    return _NOTHING if column == NOTHING_STORED else msgspec.json.decode(column, type=StoredProperties)


def folded(text: str) -> str:
    """Text for a comparison without case, width and accents of single letters."""
    apart = unicodedata.normalize("NFKD", _line(text)).casefold()
    return unicodedata.normalize("NFC", "".join(char for char in apart if not unicodedata.combining(char)))


def language_key(tag: str) -> str:
    """A language tag in one spelling: ``en_US`` and ``EN-us`` are ``en-us``."""
    return _line(tag).replace("_", "-").lower()


def time_key(text: str) -> str:
    """A time as ``2024-05-01T10:00:00`` in UTC, of a year or a month its start; empty if it is no date."""
    given = _line(text)
    if given[:4].isdecimal() and len(given) in (4, 7):
        given = f"{given}-01-01"[:10] if len(given) == 4 else f"{given}-01"
    try:
        time = datetime.fromisoformat(given)
        time = time.astimezone(UTC) if time.tzinfo is not None else time
    except (ValueError, OverflowError):
        return ""
    return time.replace(tzinfo=None).isoformat(timespec="seconds")


def _line(text: str) -> str:
    """Text on one line, without characters refused by a store."""
    kept = "".join(char if unicodedata.category(char)[0] != "C" else " " for char in text[: 4 * MAX_CHARS])
    return " ".join(kept.split())[:MAX_CHARS]


def shortened(warnings: tuple[str, ...]) -> tuple[str, ...]:
    """The warnings in single lines, each once, and not too many."""
    kept = tuple(dict.fromkeys(map(_line, warnings)))
    if len(kept) <= MAX_WARNINGS:
        return kept
    return (*kept[: MAX_WARNINGS - 1], f"and {len(kept) - MAX_WARNINGS + 1:,} more warnings")
