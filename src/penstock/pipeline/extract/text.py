"""Text files: plain text, Markdown, source code, and one record per line."""

from __future__ import annotations

import re

from penstock.errors import DocumentTooLarge
from penstock.pipeline.extract.charset import Decoded, clean, decode
from penstock.pipeline.extract.charset_labels import text_label
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Page,
    Properties,
    Shape,
)
from penstock.vocabulary import how_many

_SHAPES = {"markdown": Shape.MARKDOWN, "code": Shape.CODE, "rows": Shape.ROWS}
_SHAPES_OF_TYPE = {"text/x-rst": Shape.RST, "text/asciidoc": Shape.ASCIIDOC, "text/x-org": Shape.ORG}
_TITLE = re.compile(r"^#\s+(\S.*)$", re.MULTILINE)


_BACKTICKS = re.compile("`{3,}")


class TextExtractor:
    """Keeps the text unchanged, with the line numbers of the file."""

    version = "2"

    def __init__(self, name: str = "text") -> None:
        self.name = name

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        decoded = decode(content.data, text_label)
        text = clean(decoded.text)
        return one_page(
            text,
            file_type,
            limits,
            shape=_SHAPES.get(self.name) or _SHAPES_OF_TYPE.get(file_type.media_type, Shape.PROSE),
            title=_title(text) if self.name == "markdown" else None,
            line_numbers=True,
            decoded=decoded,
        )


def one_page(
    text: str,
    file_type: FileType,
    limits: ExtractLimits,
    *,
    shape: Shape,
    title: str | None = None,
    line_numbers: bool | tuple[int, ...] = False,
    decoded: Decoded | None = None,
    warnings: tuple[str, ...] = (),
) -> ExtractedText:
    """Make a document of one page. A page of white space is empty.

    ``line_numbers``: True if lines of the text are lines of the file, or the position of each line.
    ``decoded``: how the bytes were decoded, for properties and warnings.
    """
    if len(text) > limits.text_chars:
        raise DocumentTooLarge(f"the text has {len(text):,} characters; the limit is {limits.text_chars:,}")
    positions = line_numbers if isinstance(line_numbers, tuple) else None
    page = Page(1, text, positions=positions) if text.strip() else Page(1, "")
    return ExtractedText(
        pages=(page,),
        file_type=file_type,
        shape=shape,
        page_count=1,
        title=title,
        line_numbers=line_numbers is True,
        warnings=(*decoding_warnings(decoded), *warnings) if decoded is not None else warnings,
        properties=decoding_properties(decoded) if decoded is not None else Properties(),
    )


def fence_around(text: str) -> str:
    """Backticks for a fence around a text: more than the text has in a row."""
    return "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))


def decoding_warnings(decoded: Decoded) -> tuple[str, ...]:
    if decoded.replaced:
        replaced = how_many(decoded.replaced, "character is", "characters are")
        return (f"{replaced} not {decoded.encoding}, and replaced",)
    return (f"encoding guessed: {decoded.encoding}",) if decoded.guessed else ()


def decoding_properties(decoded: Decoded) -> Properties:
    encoding = "" if decoded.encoding in ("utf-8", "utf-8-sig") else decoded.encoding
    return Properties(encoding=encoding, replaced=decoded.replaced)


def _title(text: str) -> str | None:
    found = _TITLE.search(text[:4096])
    if found is None:
        return None
    line = found[1]
    # The first character belongs to the title, even a hash sign.
    return line[0] + line[1:].rstrip("#").rstrip()
