"""Messages above the size limit. Only their beginning leaves the Redis server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from penstock import clock
from penstock.errors import PayloadTooLarge
from penstock.named_tuple import NamedTuple
from penstock.redis_contract.message import MAX_BYTES, Message

MARK = b"\0too-large"
"""Begins the entry that replaces such a message in a gateway's list. No JSON begins so."""
HEAD_BYTES = 64 * 1024
"""Bytes kept of a message. Its id and path are looked for in them."""
SHOWN_CHARACTERS = 1_000

_MEMBER = re.compile(r"[\s,{]*(?=\")")
_VALUE = re.compile(r"\s*:\s*")


class OversizedMessage(NamedTuple):
    """The beginning of a message above the limit, with the list that it came from."""

    size: int
    list_key: str
    head: bytes

    def refusal(self) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"the message has {self.size} bytes, the limit is {MAX_BYTES}",
            remedy="Send the path of the file, and no content.",
        )

    def fields(self) -> dict[str, Any]:
        """Read the plain fields of the object up to the first incomplete one."""
        found: dict[str, Any] = {}
        text = self.head.decode("utf-8", "replace")
        # The text is cut somewhere, or is no JSON at all: the fields before that place count.
        with suppress(ValueError, RecursionError):
            for name, value in _members(text):
                if name in Message.__struct_fields__ and isinstance(value, str):
                    # Half a character, as an escape of JSON can have it, fits into no hash.
                    found[name] = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return found

    def letter(self, refusal: PayloadTooLarge) -> dict[str, Any]:
        """Build the dead letter, with the beginning in place of the message."""
        rag_id = self.fields().get("rag_id")
        beginning = self.head[:SHOWN_CHARACTERS].decode("latin-1")
        return {
            "code": refusal.code,
            "reason": refusal.message,
            "remedy": refusal.remedy,
            "at": clock.format_time(clock.now()),
            "list": self.list_key,
            "rag_id": rag_id if isinstance(rag_id, str) and rag_id.isprintable() else None,
            "message_bytes": self.size,
            "message_beginning": re.sub("[^ -~]", "?", beginning),
        }


def _members(text: str) -> Iterator[tuple[str, Any]]:
    """Members of a JSON object that may be cut off. Raises ValueError there; a number may be cut itself."""
    decoder, at = json.JSONDecoder(), 0
    if not text.lstrip().startswith("{"):
        return
    while member := _MEMBER.match(text, at):
        name, at = decoder.raw_decode(text, member.end())
        colon = _VALUE.match(text, at)
        if colon is None:
            return
        value, at = decoder.raw_decode(text, colon.end())
        yield name, value


def read_oversized(raw: bytes) -> OversizedMessage | None:
    """Read the entry of a message above the limit; None for any other message."""
    parts = raw.split(b"\n", 3) if raw.startswith(MARK) else []
    if len(parts) < 4 or not parts[1].isdigit() or len(parts[1]) > 20:
        return None
    return OversizedMessage(int(parts[1]), parts[2].decode("utf-8", "replace"), parts[3])
