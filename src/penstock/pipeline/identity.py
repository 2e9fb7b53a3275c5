"""What makes a chunk the same chunk in the next generation of its source."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable

import msgspec

_NAMESPACE = uuid.UUID("6f1b0a52-8f1c-5b7e-9a43-2d6c1e0f7b94")
"""Never changes: every chunk id hangs on it."""


class ChunkIdentity(msgspec.Struct, frozen=True, gc=False):
    """``occurrence`` counts equal texts of one source from 0, so that repeated paragraphs stay apart."""

    chunk_id: str
    text_hash: str
    occurrence: int


def text_hash(text: str) -> str:
    """SHA-256 as 64 hex digits; a lone surrogate is hashed as it stands."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chunk_id(tenant_id: str, source_id: str, text_hash: str, occurrence: int) -> str:
    """UUIDv5 of the four. Lengths keep the parts apart, whatever characters a tenant's name holds."""
    parts = (tenant_id, source_id, text_hash, str(occurrence))
    return str(uuid.uuid5(_NAMESPACE, "".join(f"{len(part)}:{part}" for part in parts)))


def identify(tenant_id: str, source_id: str, texts: Iterable[str]) -> list[ChunkIdentity]:
    """The identities of a source's chunks, in the order given: that of pages, then of starts."""
    seen: Counter[str] = Counter()
    found = []
    for text in texts:
        digest = text_hash(text)
        occurrence = seen[digest]
        seen[digest] += 1
        found.append(ChunkIdentity(chunk_id(tenant_id, source_id, digest, occurrence), digest, occurrence))
    return found
