"""Ids that follow from content: the same text in the same source has the same id, wherever it is computed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

NAMESPACE = bytes.fromhex("6f6b1d9ac0c74b0f9e0b7a6d0e1c5a42")
"""Ours alone, as RFC 4122 asks for ids of version 5."""


def text_hash(text: str) -> str:
    """What makes two chunks the same text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def text_key(hash_of_text: str) -> int:
    """The first 60 bits of a hash: short enough to stand in an index; equal hashes have equal keys."""
    return int(hash_of_text[:15], 16)


def chunk_id(tenant_id: str, source_id: str, hash_of_text: str, occurrence: int) -> str:
    """UUIDv5 of the tenant, the source, the text and how many equal texts stood before it in the source."""
    name = f"{tenant_id}\0{source_id}\0{hash_of_text}\0{occurrence}".encode()
    digest = bytearray(hashlib.sha1(NAMESPACE + name, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class ChunkIds:
    """The ids of one generation's chunks, given in the order of the document."""

    def __init__(self, tenant_id: str, source_id: str, seen: Iterable[str] = ()) -> None:
        """``seen``: hashes of chunks of this generation that have their ids already."""
        self._tenant_id = tenant_id
        self._source_id = source_id
        self._seen = Counter(seen)

    def next(self, hash_of_text: str) -> str:
        occurrence = self._seen[hash_of_text]
        self._seen[hash_of_text] = occurrence + 1
        return chunk_id(self._tenant_id, self._source_id, hash_of_text, occurrence)
