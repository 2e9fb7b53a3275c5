"""What decides whether something has to be done again: the names and versions of what did it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec


def fingerprint(parts: Mapping[str, object]) -> str:
    """16 hex digits of the names and values given, whatever their order."""
    canonical = msgspec.json.encode(dict(sorted(parts.items())))
    return hashlib.sha256(canonical).hexdigest()[:16]
