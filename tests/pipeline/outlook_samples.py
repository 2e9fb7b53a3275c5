"""Messages of Outlook for tests, and a writer of the compound files that hold them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias

Storage: TypeAlias = Mapping[str, "bytes | Storage"]

_SECTOR = 512
_END, _FREE, _FAT_SECTOR, _NONE = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD, 0xFFFFFFFF
_LARGE = 4096
"""Shorter streams would need a second allocation table, so they are padded."""


@dataclasses.dataclass
class _Entry:
    """A line of the directory: 5 the root, 1 a storage, 2 a stream."""

    name: str
    kind: int
    right: int = _NONE
    child: int = _NONE
    start: int = _END
    size: int = 0

    def encoded(self) -> bytes:
        name = self.name.encode("utf-16-le")
        numbers = (_NONE, self.right, self.child, 0, self.start, self.size)
        return struct.pack("<64sHBB3I16xI8x8xIQ", name, len(name) + 2, self.kind, 1, *numbers)


def compound(root: Storage) -> bytes:
    """A compound file (MS-CFB) with this tree of streams."""
    entries: list[_Entry] = [_Entry("Root Entry", 5)]
    sectors: list[bytes] = []
    chains: list[int] = []

    def add(data: bytes) -> int:
        first, count = len(sectors), -(-len(data) // _SECTOR)
        padded = data.ljust(count * _SECTOR, b"\0")
        sectors.extend(padded[at : at + _SECTOR] for at in range(0, len(padded), _SECTOR))
        chains.extend([*range(first + 1, first + count), _END])
        return first

    def fill(parent: int, storage: Storage) -> None:
        previous = None
        for name, value in storage.items():
            number = len(entries)
            entries.append(_Entry(name, 2 if isinstance(value, bytes) else 1))
            if previous is None:
                entries[parent].child = number
            else:
                entries[previous].right = number
            previous = number
            if isinstance(value, bytes):
                data = value.ljust(_LARGE, b"\0")
                entries[number].start, entries[number].size = add(data), len(data)
            else:
                fill(number, value)

    fill(0, root)
    directory = b"".join(entry.encoded() for entry in entries)
    directory_start = add(directory)
    fat_sectors = -(-(len(chains) + 110) // 128)
    fat_start = len(sectors)
    table = chains + [_FAT_SECTOR] * fat_sectors
    table += [_FREE] * (fat_sectors * 128 - len(table))
    fat = struct.pack(f"<{len(table)}I", *table)
    listed = [*range(fat_start, fat_start + fat_sectors)] + [_FREE] * (109 - fat_sectors)
    header = struct.pack(
        "<8s16x5H6x9I109I",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        *(0x3E, 3, 0xFFFE, 9, 6),
        *(0, fat_sectors, directory_start, 0, _LARGE, _END, 0, _END, 0),
        *listed,
    )
    return header + b"".join(sectors) + fat


def outlook(
    subject: str = "The mill",
    body: str | bytes = "Water drives the wheel.",
    attachments: Mapping[str, bytes | Storage] | None = None,
    *,
    codepage: int = 0,
    top: bool = True,
    **more: bytes,
) -> Storage:
    """A message as a tree. A body of bytes is in the code page; more: other streams by property number."""
    sent = int((datetime(2020, 3, 2, 9, 11, 12, tzinfo=UTC).timestamp() + 11_644_473_600) * 1e7)
    numbers = struct.pack("<HHIQ", 0x0040, 0x0039, 0, sent)
    if codepage:
        numbers += struct.pack("<HHIQ", 0x0003, 0x3FDE, 0, codepage)
    made: dict[str, bytes | Storage] = {
        "__properties_version1.0": bytes(32 if top else 24) + numbers,
        "__substg1.0_0037001F": subject.encode("utf-16-le"),
        "__substg1.0_0C1A001F": "Ada Miller".encode("utf-16-le"),
        "__substg1.0_0C1F001F": "ada@example.org".encode("utf-16-le"),
        "__substg1.0_0E04001F": "bob@example.org".encode("utf-16-le"),
    }
    kind = "001E" if isinstance(body, bytes) else "001F"
    made[f"__substg1.0_1000{kind}"] = body if isinstance(body, bytes) else body.encode("utf-16-le")
    made |= {f"__substg1.0_{name.removeprefix('p')}": data for name, data in more.items()}
    for number, (name, content) in enumerate((attachments or {}).items()):
        inside: dict[str, bytes | Storage] = {
            "__properties_version1.0": bytes(8),
            "__substg1.0_3707001F": name.encode("utf-16-le"),
        }
        inside["__substg1.0_37010102" if isinstance(content, bytes) else "__substg1.0_3701000D"] = content
        made[f"__attach_version1.0_#{number:08X}"] = inside
    return made
