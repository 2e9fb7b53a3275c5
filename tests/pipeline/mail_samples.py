"""Messages and archives for tests."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage


def message(
    subject: str = "The mill",
    body: str | None = "Water drives the wheel.",
    **attachments: bytes | EmailMessage,
) -> EmailMessage:
    """A message. Names of attachments: ``report__pdf`` is ``report.pdf``."""
    made = EmailMessage()
    made["Subject"], made["From"], made["To"] = subject, "Ada Miller <ada@example.org>", "bob@example.org"
    made["Date"] = "Mon, 02 Mar 2020 10:11:12 +0100"
    if body is not None:
        made.set_content(body)
    for name, data in attachments.items():
        if isinstance(data, EmailMessage):
            made.add_attachment(data)
        else:
            made.add_attachment(data, "application", "octet-stream", filename=name.replace("__", "."))
    if made.is_multipart():
        # The same message is the same bytes.
        made.set_boundary(hashlib.sha256(subject.encode()).hexdigest()[:20])
    return made


def mail(
    subject: str = "The mill",
    body: str | None = "Water drives the wheel.",
    **attachments: bytes | EmailMessage,
) -> bytes:
    return message(subject, body, **attachments).as_bytes()


def zipped(members: Mapping[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(members: Mapping[str, bytes | tarfile.TarInfo], packing: str = "") -> bytes:
    """A tar archive; ``packing``: gz, bz2, xz or nothing."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            if isinstance(data, tarfile.TarInfo):
                archive.addfile(data)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data = out.getvalue()
    match packing:
        case "gz":
            return gzip.compress(data, mtime=0)
        case "bz2":
            return bz2.compress(data)
        case "xz":
            return lzma.compress(data)
    return data


def encrypted_zip(name: str) -> bytes:
    """A zip archive with one member marked as encrypted, beside a readable one."""
    data = bytearray(zipped({name: b"secret of the mill", "open.txt": b"The mill is open."}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    return bytes(data)
