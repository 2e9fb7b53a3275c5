"""Words that people read: the statuses of every door, numbers with their nouns, and messages with a remedy.

Every door accepts all words for a status as input. Inside Penstock and in SQL only the canonical words exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from penstock.errors import UnknownStatus

Door: TypeAlias = Literal["job", "task", "http", "cli", "redis", "function"]

DOORS: tuple[Door, ...] = ("job", "task", "http", "cli", "redis", "function")

# A door without a word for cancelled uses failed, with the error type Cancelled (C23). None: the status
# cannot occur at this door (only phases are skipped), so a translation is a bug.
_TABLE: dict[str, tuple[str | None, ...]] = {
    # canonical: the words in the order of DOORS
    "pending": ("pending", "pending", "pending", "pending", "queued", "PENDING"),
    "in_progress": ("in_progress", "processing", "running", "running", "processing", "IN_PROGRESS"),
    "done": ("done", "completed", "done", "done", "done", "COMPLETED"),
    "failed": ("failed", "failed", "failed", "failed", "failed", "FAILED"),
    "cancelled": ("cancelled", "failed", "cancelled", "cancelled", "failed", "FAILED"),
    "skipped": (None, "skipped", None, None, None, None),
}

# Words accepted as input, but never printed.
_SYNONYMS = {"submitted": "pending", "canceled": "cancelled"}

_WORDS = {canonical: dict(zip(DOORS, spoken, strict=True)) for canonical, spoken in _TABLE.items()}


def _read_synonyms() -> dict[str, str]:
    understood: dict[str, str] = dict(_SYNONYMS)
    for canonical, spoken in _WORDS.items():
        for word in filter(None, spoken.values()):
            # The first row with a word owns it: `failed` stays failed, although cancelled uses it, too.
            understood.setdefault(word.lower(), canonical)
    return understood


SYNONYMS: Mapping[str, str] = MappingProxyType(_read_synonyms())
"""All input words in lower case, with their canonical words."""

WORDS_OF_JOBS: tuple[str, ...] = tuple(
    word for words in _WORDS.values() if (word := words["http"]) is not None
)
"""The words for the statuses of jobs in answers of the server."""

_STATUSES: tuple[str, ...] = tuple(_WORDS)
"""Canonical words: those of jobs, and `skipped` for phases."""


def speak(status: str, door: Door) -> str:
    """Translate a canonical status into the word of a door."""
    spoken = _WORDS.get(status)
    if spoken is None:
        raise UnknownStatus(f"{status!r} is not a status; known are {', '.join(_STATUSES)}")
    word = spoken[door]
    if word is None:
        raise UnknownStatus(f"the {door} vocabulary has no word for {status!r}")
    return word


def understand(word: str) -> str:
    """Translate any door's word, in upper or lower case, into the canonical status."""
    canonical = SYNONYMS.get(word.strip().lower()) if isinstance(word, str) else None
    if canonical is None:
        given = str(word)[:80]
        import difflib

        close = difflib.get_close_matches(given.lower(), SYNONYMS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise UnknownStatus(f"{given!r} is not a status{hint}; known are {', '.join(sorted(SYNONYMS))}")
    return canonical


def how_many(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: ``1 page``, ``1,200 pages``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


_REMEDY = ". Remedy: "


def none_read(pages: int) -> str:
    """Phrase for a document without a readable page."""
    return "its page could not be read" if pages == 1 else f"none of {how_many(pages, 'page')} could be read"


def with_remedy(message: str, remedy: str) -> str:
    """A message that carries its remedy: a failure of a page or chunk is stored as one text."""
    return f"{message.rstrip('.')}{_REMEDY}{remedy}" if remedy else message


def split_remedy(message: str) -> tuple[str, str]:
    """Cause and remedy of a message; the remedy is empty unless the message carries one."""
    cause, _, remedy = message.partition(_REMEDY)
    return cause, remedy


def shown_size(count: int) -> str:
    """A number of bytes for people, such as ``64 MB`` or ``2.1 GB``; a MB has 2^20 bytes."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + f" {unit}"
    return how_many(count, "byte")


def escape_control(text: str) -> str:
    """Replace unprintable characters by escapes such as ``\\n`` or ``\\x1b``."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
