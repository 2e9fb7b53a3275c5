"""Parts of a document in a ZIP archive, read in memory and within limits."""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterator

from penstock.errors import DocumentDamaged, DocumentEncrypted, DocumentTooLarge
from penstock.pipeline.extract.office.xml_events import XmlHandler, parse_xml
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.vocabulary import how_many

MAX_MEMBERS = 10_000
_UNPACKED = 4
"""Bytes that may be unpacked, as a multiple of the size limit of a file."""
_PIECE = 64 * 1024
_ENCRYPTED_MEMBER = 1
_DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError)


class Archive:
    """A ZIP archive of parts. Nothing is written to the disk, so names of parts are only keys.

    Sizes in the directory limit what is unpacked: more than that is never read from a part.
    """

    def __init__(self, data: bytes, limits: ExtractLimits) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            members = self._zip.infolist()
        except _DAMAGE as error:
            raise DocumentDamaged(f"the document is a damaged archive: {error}") from error
        if len(members) > MAX_MEMBERS:
            raise DocumentTooLarge(
                f"the document has {how_many(len(members), 'part')}; the limit is {MAX_MEMBERS:,}",
                remedy="Split the document, or save it again with fewer pictures and embedded objects.",
            )
        # Of members with the same name, the last counts, as in most programs.
        self._members = {_key(member.filename): member for member in members}
        self.has_duplicates = len(self._members) < len(members)
        self._most = _UNPACKED * limits.file_bytes
        self._left = self._most

    @property
    def names(self) -> list[str]:
        return [member.filename.replace("\\", "/") for member in self._members.values()]

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._members

    def pieces(self, name: str) -> Iterator[bytes]:
        """Unpack a part piece by piece. The pieces grow with the part: a parser that begins a long token
        again with each piece still needs linear time."""
        member = self._members.get(_key(name))
        if member is None:
            raise DocumentDamaged(f"the document lacks its part {name!r}")
        if member.flag_bits & _ENCRYPTED_MEMBER:
            raise DocumentEncrypted("the document is encrypted and opens only with a password")
        self._charge(member.file_size)
        try:
            with self._zip.open(member) as source:
                read = 0
                while piece := source.read(max(_PIECE, read)):
                    read += len(piece)
                    yield piece
        except _DAMAGE as error:
            raise DocumentDamaged(f"the part {name!r} is damaged: {error}") from error

    def read(self, name: str) -> bytes:
        return b"".join(self.pieces(name))

    def check(self, name: str) -> None:
        """Unpack a part and discard the data: a check of the limits before another library reads the part."""
        for _ in self.pieces(name):
            pass

    def parse(self, name: str, handler: XmlHandler, *, outer_doctype: bool = False) -> None:
        parse_xml(self.pieces(name), handler, name, outer_doctype=outer_doctype)

    def parse_if_present(self, name: str, handler: XmlHandler) -> None:
        """Parse an optional part."""
        if name in self:
            self.parse(name, handler)

    def _charge(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise DocumentTooLarge(
                f"the document unpacks to more than {self._most:,} bytes, the limit for its parts"
            )


def _key(name: str) -> str:
    """Name of a part in the form of comparisons: without regard to case, with forward slashes."""
    return name.replace("\\", "/").lstrip("/").lower()


def resolve(part: str, target: str) -> str:
    """Name of the part behind the reference ``target`` in ``part``."""
    target = target.partition("#")[0]
    if target.startswith("/"):
        return target.lstrip("/")
    return posixpath.normpath(posixpath.join(posixpath.dirname(part), target)).lstrip("/")
