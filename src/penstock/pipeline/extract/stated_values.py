"""Names, titles and dates stated in a file, in one normal form."""

from __future__ import annotations

import re

from penstock.pipeline.extract.charset import clean

MAX_CHARS = 500
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?)?)?")
_NO_TITLES = frozenset(
    [
        "",
        "untitled",
        "untitled document",
        "powerpoint presentation",
        "powerpoint-präsentation",
        "word document",
    ]
)


def one_line(text: str) -> str:
    """Clean a value and join its lines; cut after 500 characters."""
    return " ".join(clean(text).split())[:MAX_CHARS].rstrip()


def stated_title(text: str) -> str | None:
    """A title, unless known as a program's default title."""
    title = one_line(text)
    return None if title.lower() in _NO_TITLES else title


def stated_date(text: str) -> str:
    """An ISO 8601 date, or nothing."""
    value = one_line(text)
    return value if _DATE.fullmatch(value) and value > "1601-01-02" else ""
