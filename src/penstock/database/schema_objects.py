"""Names of tables, indexes and other objects created by migration scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CREATE = re.compile(
    r"^CREATE (?:UNIQUE |VIRTUAL |OR REPLACE )?"
    r"(TABLE|VIEW|INDEX|TYPE|SEQUENCE|FUNCTION|TRIGGER|TEXT SEARCH DICTIONARY|TEXT SEARCH CONFIGURATION)"
    r" (?:IF NOT EXISTS )?(\w+)",
    re.MULTILINE,
)
_DROP = re.compile(r"^DROP \w+ (?:IF EXISTS )?(\w+)", re.MULTILINE)


def created_names(scripts: Iterable[str]) -> list[str]:
    """List names in order of creation, without triggers (unique only per table) and dropped objects."""
    names: dict[str, None] = {}
    for script in scripts:
        for name in _DROP.findall(script):
            names.pop(name, None)
        names |= {name: None for kind, name in _CREATE.findall(script) if kind != "TRIGGER"}
    return list(names)
