"""Texts that not every store can keep: refused when they come in, not found when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.errors import InvalidText
from penstock.job import NewJob


def storable(values: Iterable[object]) -> bool:
    """Whether a row can hold all of these. A database refuses even to look for a text that it cannot."""
    try:
        return not any(b"\0" in value.encode() for value in values if isinstance(value, str))
    except UnicodeEncodeError:
        return False


def refuse_unstorable(new: Sequence[NewJob]) -> None:
    """What one engine cannot keep, none accepts."""
    for item in new:
        names = (item.queue_id, item.tenant_id, item.collection, item.branch, item.idempotency_key)
        text = "".join((*names, item.submitted_by, item.lock_key or "", item.metadata, item.payload_json))
        if "\0" in text:
            raise InvalidText(f"job {item.queue_id!r} holds a NUL character")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidText(f"job {item.queue_id!r} holds a lone surrogate") from None
