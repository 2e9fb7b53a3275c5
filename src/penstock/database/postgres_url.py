"""The part of a PostgreSQL URL that is Penstock's own: ``?schema=NAME``, the schema for all its tables."""

from __future__ import annotations

import re
from urllib.parse import unquote

from penstock.errors import InvalidSetting

_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


def split_schema(url: str) -> tuple[str, str | None]:
    """The URL as libpq takes it, and the schema it names."""
    address, question, query = url.rpartition("?")
    if not question:
        return url, None
    parts = [part for part in query.split("&") if part]
    names = [unquote(part.partition("=")[2]) for part in parts if part.partition("=")[0] == "schema"]
    if not names:
        return url, None
    if len(names) > 1 or not _NAME.fullmatch(names[0]):
        raise InvalidSetting(
            f"schema={names[-1][:100]!r} in the postgresql:// URL is not a name that can be used",
            remedy="Write ?schema=NAME once: up to 63 lower-case letters, digits, _; no digit or pg_ first.",
        )
    rest = "&".join(part for part in parts if part.partition("=")[0] != "schema")
    return address + (f"?{rest}" if rest else ""), names[0]
