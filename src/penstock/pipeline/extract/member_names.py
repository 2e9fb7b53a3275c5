"""Names of files inside other files, made safe: they become the end of a path."""

from __future__ import annotations

import re
import unicodedata

PART_BYTES = 120
NAME_BYTES = 480
"""Limits for one part of a name, and for the whole name with its inner folders."""

_UNNAMED = "unnamed"
_HIDDEN_KINDS = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
_DRIVE = re.compile(r"^[A-Za-z]:(?=[\\/])")


class MemberNames:
    """Gives each file inside one container a unique name: relative, without ``..``, and printable.

    Inner folders are kept. No name is the folder of another one.
    """

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The last number added to a name, so that many equal names take no longer than others."""

    def add(self, name: str) -> str:
        *folders, last = _parts(name) or [_UNNAMED]
        path = ""
        for folder in folders:
            path = self._free(path, folder, folder=True)
            self._folders.add(path)
        path = self._free(path, last, folder=False)
        self._files.add(path)
        return path

    def _free(self, above: str, name: str, *, folder: bool) -> str:
        """A free name below a folder, numbered if already used by a file (or, for a file, by a folder)."""
        wanted = path = f"{above}/{name}" if above else name
        stem, dot, suffix = wanted.rpartition(".")
        numbered = bool(dot and stem and not stem.endswith("/") and "/" not in suffix)
        while path in self._files or (not folder and path in self._folders):
            number = self._numbers[wanted] = self._numbers.get(wanted, 1) + 1
            path = f"{stem} ({number}).{suffix}" if numbered else f"{wanted} ({number})"
        return path


def _parts(name: str) -> list[str]:
    """Parts of a name without ``.``, ``..``, drives and invisible characters."""
    text = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    text = _DRIVE.sub("", text[-10_000:])
    visible = "".join("_" if unicodedata.category(char) in _HIDDEN_KINDS else char for char in text)
    parts = [part.strip() for part in visible.replace("\\", "/").split("/")]
    kept = [_shortened(part) for part in parts if part.strip(". ") or len(part) > 2]
    while len(kept) > 1 and len("/".join(kept).encode()) > NAME_BYTES:
        # The outer folders say least.
        del kept[0]
    return kept


def _shortened(part: str) -> str:
    encoded = part.encode()
    if len(encoded) <= PART_BYTES:
        return part
    stem, dot, suffix = part.rpartition(".")
    tail = f".{suffix}" if dot and stem and len(suffix.encode()) <= 12 else ""
    head = part[: len(part) - len(tail)].encode()[: PART_BYTES - len(tail.encode()) - 3]
    return head.decode("utf-8", "ignore") + "…" + tail
