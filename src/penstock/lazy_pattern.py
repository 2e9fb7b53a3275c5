"""Regular expressions that are compiled at the first use.

Python keeps no compiled pattern on disk. A short command imports a hundred patterns and uses few of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn", "pattern", "flags")


class _LazyPattern:
    """A stand-in with the methods of a pattern, but not for the functions of ``re``."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._given = flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(f"a lazy pattern has no attribute {name!r}")
        compiled = re.compile(self._source, self._given)
        self.__dict__.update({each: getattr(compiled, each) for each in _METHODS})
        return self.__dict__[name]


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A pattern, compiled when one of its methods is called first."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))
