"""Store URLs without their passwords, for messages and logs; malformed ones hide more rather than less."""

from __future__ import annotations

import re
from pathlib import Path

MASK = "***"
SPECIAL = (
    "Percent-encode special characters of the password: @ is %40, / is %2F, ? is %3F, # is %23, : is %3A."
)

_SECRET_OPTION = re.compile(
    r"((?:^|[?&;\s])[^=&;#\s]*(?:passw|pwd|secret|token|key)[^=&;#\s]*\s*=\s*)('[^']*'|[^&;#\s]*)",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|(?:postgres(?:ql)?|rediss?|unix|sqlite|jsonl):?/*)")
_HOSTS = re.compile(r"(?:(?:\[[^\]]*\]|[^:,\[\]]*)(?::[0-9]*)?(?:,|$))*")
"""Hosts with ports, as they stand where no user is named."""
_QUERY = re.compile(r"[^?@]*\?(?:[\w.-]+=[^&]*(?:&|$))*")
_FILES = re.compile(r"\s*(?:sqlite|jsonl|file)://")
_SHORTEST = 3


def masked_url(url: str) -> str:
    """The URL with its password, and any in its query, replaced by ``***``.

    Where it is not clear what the password is, everything that may belong to it is replaced.
    """
    start, end = _hidden(url)
    shown = url[:start] + (MASK if end > start else "") + url[end:]
    return _SECRET_OPTION.sub(rf"\1{MASK}", shown)


def masked_text(text: str, url: str) -> str:
    """A text, such as a driver's error, without the URL's password or parts of it."""
    start, end = _hidden(url)
    secrets = [url[start:end], *re.split(r"[@/?#:]", url[start:end])]
    secrets += [found[2] for found in _SECRET_OPTION.finditer(url)]
    text = text.replace(url, masked_url(url))
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    return text


def _hidden(url: str) -> tuple[int, int]:
    """Where the password begins and ends; the same number twice where there is none."""
    found = _SCHEME.match(url)
    start = found.end() if found else 0
    rest = url[start:]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    at = rest.rfind("@")
    if _FILES.match(url) and not (":" in authority and "@" in authority):
        return 0, 0
    if "@" not in authority and _HOSTS.fullmatch(authority):
        if at < 0 or _QUERY.fullmatch(rest[len(authority) :]):
            return 0, 0
    elif at < 0:
        at = len(rest)
    colon = rest.find(":", 0, at)
    if colon < 0:
        # A user without a password, unless there is not even a scheme to tell them apart.
        return (0, 0) if found else (start, start + at)
    return start + colon + 1, start + at


def resolved_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return f"sqlite:///{Path(rest[1:]).expanduser().resolve()}"
    return f"jsonl://{Path(rest).expanduser().resolve()}" if scheme == "jsonl" else url
