"""Types of files that hold others: mail, archives and compressed files."""

from __future__ import annotations

from penstock.errors import UnsupportedType
from penstock.pipeline.extract.charset import looks_binary
from penstock.pipeline.extract.protocol import FileType

MAIL = FileType("message/rfc822", "mail")
MAILBOX = FileType("application/mbox", "mailbox", page_unit="message")
OUTLOOK = FileType("application/vnd.ms-outlook", "outlook")
ZIP = FileType("application/zip", "archive")
TAR = FileType("application/x-tar", "archive")
COMPRESSED = FileType("application/gzip", "compressed")

CHECKED = frozenset([OUTLOOK, ZIP, TAR, COMPRESSED])
"""Types with a signature at their start."""
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")


def checked_container(name: str, expected: FileType, head: bytes) -> FileType:
    """Type of a message, archive or compressed file; raises UnsupportedType if the content is another."""
    shown = repr(name.rpartition("/")[2])
    if expected is OUTLOOK:
        if head.startswith(b"\xd0\xcf\x11\xe0"):
            return OUTLOOK
        if not looks_binary(head):
            return MAIL
        raise UnsupportedType(f"{shown} is not a message, in spite of its name")
    if expected is ZIP:
        right = head.startswith((b"PK\x03\x04", b"PK\x05\x06"))
    else:
        right = head.startswith(_PACKED) or (expected is TAR and head[257:262] == b"ustar")
    if not right:
        what = "compressed" if expected is COMPRESSED else "an archive"
        raise UnsupportedType(f"{shown} is not {what}, in spite of its name")
    return expected
