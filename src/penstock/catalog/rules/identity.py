"""Identity of texts: hashes, and ids of chunks that survive an edit elsewhere in their document. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

NAMESPACE = bytes.fromhex("6f6b1d9ac0c74b0f9e0b7a6d0e1c5a42")
"""Ours alone, as RFC 4122 asks for ids of version 5."""


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def text_hash(text: str) -> str:
    """Hash of a text: equal for equal texts.

    Raises ``UnicodeEncodeError`` for lone surrogates, which no store keeps.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def text_key(hash_of_text: str) -> int:
    """The first 60 bits of a hash: short enough to stand in an index; equal hashes have equal keys."""
    return int(hash_of_text[:15], 16)


class ChunkIds:
    """The ids of one generation's chunks, given in the order of the document.

    They are derived from content: equal text in one source has the same id on every host.
    """

    def __init__(self, tenant_id: str, source_id: str, seen: Mapping[str, int] | None = None) -> None:
        """Start numbering. ``seen``: by text hash, the number of this generation's chunks with an id."""
        self._seen = dict(seen or {})
        self._begun = hashlib.sha1(NAMESPACE + f"{tenant_id}\0{source_id}".encode(), usedforsecurity=False)

    def next(self, hash_of_text: str) -> str:
        occurrence = self._seen.get(hash_of_text, 0)
        self._seen[hash_of_text] = occurrence + 1
        digest = self._begun.copy()
        digest.update(f"\0{hash_of_text}\0{occurrence}".encode())
        text = digest.hexdigest()
        variant = _VARIANT[text[16]]
        return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"
