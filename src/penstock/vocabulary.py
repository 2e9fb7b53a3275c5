"""The status words of every door, in one table; all of them are understood at all doors.

Inside Penstock and in SQL only the canonical words of the first column exist.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from penstock.errors import UnknownStatus

Door: TypeAlias = Literal["job", "task", "http", "cli", "redis", "function"]

DOORS: tuple[Door, ...] = ("job", "task", "http", "cli", "redis", "function")

# A door without a word for cancelled says failed, with the error type Cancelled (C23). None: such a status
# cannot occur there (only phases are skipped), so speaking it is a mistake worth an error.
_TABLE: dict[str, tuple[str | None, ...]] = {
    # canonical: the words in the order of DOORS
    "pending": ("pending", "pending", "pending", "pending", "queued", "PENDING"),
    "in_progress": ("in_progress", "processing", "running", "running", "processing", "IN_PROGRESS"),
    "done": ("done", "completed", "done", "done", "done", "COMPLETED"),
    "failed": ("failed", "failed", "failed", "failed", "failed", "FAILED"),
    "cancelled": ("cancelled", "failed", "cancelled", "cancelled", "failed", "FAILED"),
    "skipped": (None, "skipped", None, None, None, None),
}

# Words that some door or user says but no door answers with.
_SYNONYMS = {"submitted": "pending", "canceled": "cancelled"}

_WORDS = {canonical: dict(zip(DOORS, spoken, strict=True)) for canonical, spoken in _TABLE.items()}


def _read_synonyms() -> dict[str, str]:
    understood: dict[str, str] = dict(_SYNONYMS)
    for canonical, spoken in _WORDS.items():
        for word in filter(None, spoken.values()):
            # The first row that has a word owns it: `failed` stays failed although cancelled borrows it.
            understood.setdefault(word.lower(), canonical)
    return understood


SYNONYMS: Mapping[str, str] = MappingProxyType(_read_synonyms())
"""Every word understood on input, in lower case, and the canonical word it means."""

STATUSES: tuple[str, ...] = tuple(_WORDS)
"""The canonical words: those of jobs, and `skipped` for phases."""


def speak(status: str, door: Door) -> str:
    """The word this door uses for a canonical status."""
    spoken = _WORDS.get(status)
    if spoken is None:
        raise UnknownStatus(f"{status!r} is not a status; known are {', '.join(STATUSES)}")
    word = spoken[door]
    if word is None:
        raise UnknownStatus(f"the {door} vocabulary has no word for {status!r}")
    return word


def understand(word: str) -> str:
    """The canonical status meant by any door's word, in any case."""
    canonical = SYNONYMS.get(word.strip().lower()) if isinstance(word, str) else None
    if canonical is None:
        said = str(word)[:80]
        close = difflib.get_close_matches(said.lower(), SYNONYMS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise UnknownStatus(f"{said!r} is not a status{hint}; known are {', '.join(sorted(SYNONYMS))}")
    return canonical


def how_many(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things as it is said: ``1 page``, ``1,200 pages``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
