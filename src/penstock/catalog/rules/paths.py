"""Paths below a folder, deletes covering a path, and ids derived from content. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime

from penstock.catalog.values import Place, Removal, Walk

PARKED = "\x01"
"""First character of the path of a source replaced by another, until swept. No requested path has it."""


def below(folder: str, path: str) -> bool:
    """Check whether a path is the folder, or lies in the folder."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def at_and_above(path: str) -> list[str]:
    """The path and every folder above: the names of deletes covering the path."""
    ends = [at for at, char in enumerate(path) if char == "/" and at and path[at - 1] != "/"]
    return [path, *(path[:at] for at in ends), *(["/"] if path.startswith("/") else [])]


def span(folder: str) -> tuple[str, str]:
    """Paths p with first <= p < last are those inside the folder (not the folder itself)."""
    first = folder.rstrip("/") + "/"
    return first, first[:-1] + "0"  # "0" follows "/"


def moved(old: str, new: str, path: str) -> str:
    """The path after a rename of the path or of a folder above."""
    return new.rstrip("/") + path[len(old.rstrip("/")) :]


def covers(removal: Removal, place: Place, path: str, source_id: str | None, asked_at: datetime) -> bool:
    """Check whether a delete wins over a generation: requested at the same time or later."""
    return (
        removal.asked_at >= asked_at
        and removal.tenant_id == place.tenant_id
        and removal.collection in (None, place.collection)
        and removal.branch in (None, place.branch)
        and removal.source_id in (None, source_id)
        and (removal.path in (None, path) or _in_its_path(removal, path))
    )


def _in_its_path(removal: Removal, path: str) -> bool:
    return removal.below and removal.path is not None and below(removal.path, path)


def contests(walk: Walk, removal: Removal, path: str | None) -> bool:
    """Check whether a walk may want paths of an earlier delete.

    ``path``: of the delete, or of the source it names.
    """
    return path is None or below(walk.root, path) or (removal.below and below(path, walk.root))


def covered(
    removals: Iterable[Removal], place: Place, path: str, source_id: str | None, asked_at: datetime
) -> bool:
    return any(covers(removal, place, path, source_id, asked_at) for removal in removals)


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
