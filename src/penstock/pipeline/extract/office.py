"""Word documents through kreuzberg. No other module uses this library."""

from __future__ import annotations

import io
import zipfile

from penstock.errors import (
    ComponentMissing,
    DocumentDamaged,
    DocumentEncrypted,
    DocumentTooLarge,
    NoText,
)
from penstock.extras import install_command
from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Shape
from penstock.pipeline.extract.text import one_page
from penstock.vocabulary import how_many

_MAX_MEMBERS = 5_000
_OLE = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")


class OfficeExtractor:
    """Paragraphs, lists and tables as Markdown, with headers and footnotes; without pictures."""

    name = "office"
    version = "1"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - a Word document has pages only when it is printed
    ) -> ExtractedText:
        _check_archive(content.data, limits)
        try:
            import kreuzberg
        except ImportError as error:
            raise ComponentMissing(f"Word documents need kreuzberg: {install_command('office')}") from error
        config = kreuzberg.ExtractionConfig(output_format="markdown", use_cache=False)
        try:
            # Never the batch call: it returns the error message of a damaged file as its text.
            result = kreuzberg.extract_bytes_sync(content.data, file_type.media_type, config)
        except kreuzberg.KreuzbergError as error:
            raise DocumentDamaged(f"the document cannot be read: {_first_line(error)}") from error
        text = clean(result.content).strip("\n")
        if not text.strip() and _shows_something(content.data):
            raise NoText("the document shows something, but no text can be read from it")
        return one_page(text, file_type, limits, shape=Shape.MARKDOWN, title=_title(result.metadata))


def _check_archive(data: bytes, limits: ExtractLimits) -> None:
    """Check the sizes in the archive's directory. False sizes run into the memory limit of the sandbox."""
    if data.startswith(_OLE):
        if _ENCRYPTED in data:
            raise DocumentEncrypted("the document is encrypted and opens only with a password")
        raise DocumentDamaged("this is a document of an older format, in spite of its name")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DocumentDamaged(f"the document is a damaged archive: {error}") from error
    unpacked = sum(member.file_size for member in members)
    if len(members) > _MAX_MEMBERS or unpacked > 4 * limits.file_bytes:
        raise DocumentTooLarge(
            f"the document unpacks to {how_many(len(members), 'part')} of {unpacked:,} bytes; "
            f"the limits are {_MAX_MEMBERS:,} and {4 * limits.file_bytes:,}"
        )
    if "word/document.xml" not in {member.filename for member in members}:
        raise DocumentDamaged("the archive holds no Word document")


def _shows_something(data: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        pictures = any(name.startswith("word/media/") for name in archive.namelist())
        return pictures or b"<w:t" in archive.read("word/document.xml")


def _title(metadata: object) -> str | None:
    about = metadata.get("core_properties") if isinstance(metadata, dict) else None
    title = about.get("title") if isinstance(about, dict) else None
    return " ".join(str(title).split())[:500] or None if title else None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
