"""Text files: plain text, Markdown, source code, and one record per line."""

from __future__ import annotations

import re

import msgspec

from penstock.errors import DocumentTooLarge
from penstock.lazy_pattern import lazy_pattern
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
_SHAPES_OF_TYPE = {
    "text/x-rst": Shape.RST,
    "text/asciidoc": Shape.ASCIIDOC,
    "text/x-org": Shape.ORG,
    "text/yaml": Shape.SECTIONS,
    "text/toml": Shape.SECTIONS,
    "text/x-ini": Shape.SECTIONS,
}
_TITLE_CHARS = 4096
"""Characters from the start in which a title is looked for."""
_MARKDOWN_TITLE = lazy_pattern(r"^#[ \t]+(\S.*)$", re.MULTILINE)
_TITLES = {
    Shape.RST: lazy_pattern(
        r"""\A\s{0,99}(?:^([=\-~^"'`#*+])\1{2,99}\n)? {0,9}(\S.*)\n([=\-~^"'`#*+])\3{2,99}$""", re.M
    ),
    Shape.ASCIIDOC: lazy_pattern(r"^()=[ \t]+(\S.*)$", re.M),
    Shape.ORG: lazy_pattern(r"^()(?:#\+title:|\*)[ \t]+(\S.*)$", re.M | re.I),
}
_FRONT_MATTER = lazy_pattern(r"\A---\n(.*?)\n(?:---|\.\.\.)\n", re.DOTALL)
_FRONT_LINE = lazy_pattern(
    r"""^(title|author|date|lang|language):[ \t]*["']?([^\n]*?)["']?[ \t]*$""", re.M | re.I
)
_DATE = lazy_pattern(
    r"\d{4}-\d{2}(?:-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?)?"
)
_MAX_PROPERTY = 500

_BACKTICKS = lazy_pattern("`{3,}")


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
        shape = _SHAPES.get(self.name) or _SHAPES_OF_TYPE.get(file_type.media_type, Shape.PROSE)
        extracted = one_page(
            text,
            file_type,
            limits,
            shape=shape,
            title=_title(text, shape),
            line_numbers=True,
            decoded=decoded,
        )
        stated = _front_matter(text) if shape is Shape.MARKDOWN else None
        if not stated:
            return extracted
        language = stated.get("lang", "") or stated.get("language", "")
        return with_properties(
            extracted, author=stated.get("author", ""), created=stated.get("date", ""), language=language
        )


def with_properties(extracted: ExtractedText, **stated: str) -> ExtractedText:
    """Add properties stated in the text. Dates count only in the form of ISO 8601."""
    kept = {
        name: value[:_MAX_PROPERTY]
        for name, value in stated.items()
        if value and (name not in ("created", "modified") or _DATE.fullmatch(value))
    }
    if not kept:
        return extracted
    properties = msgspec.structs.replace(extracted.properties, **kept)
    return msgspec.structs.replace(extracted, properties=properties)


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


def _title(text: str, shape: Shape) -> str | None:
    if shape is Shape.MARKDOWN:
        return markdown_title(text)
    pattern = _TITLES.get(shape)
    found = pattern.search(text[:_TITLE_CHARS]) if pattern is not None else None
    return found[2].strip() if found else None


def markdown_title(text: str) -> str | None:
    """Title in the front matter, or the first heading of the first level."""
    stated = _front_matter(text)
    if stated.get("title"):
        return stated["title"]
    found = _MARKDOWN_TITLE.search(text[:_TITLE_CHARS])
    if found is None:
        return None
    line = found[1]
    # The first character belongs to the title, even a hash sign.
    return line[0] + line[1:].rstrip("#").rstrip()


def _front_matter(text: str) -> dict[str, str]:
    """Simple values of the YAML block at the start of a Markdown text."""
    front = _FRONT_MATTER.match(text[:_TITLE_CHARS]) if text.startswith("---\n") else None
    return {key.lower(): value for key, value in _FRONT_LINE.findall(front[1])} if front else {}
