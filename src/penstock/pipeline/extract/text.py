"""Text files (plain text, Markdown, source code, one record per line), and what all extractors share.

Shared are documents of one page and of several, read one at a time; and names, titles and dates stated in a
file, in one normal form.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TypeGuard

from msgspec.structs import replace

from penstock.errors import (
    DocumentDamaged,
    DocumentTooLarge,
    MemoryBudgetExceeded,
    ParserFailed,
    TimeBudgetExceeded,
    UnreadableDocument,
)
from penstock.pipeline.extract.charset import Decoded, clean, decode, text_label
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    Extractor,
    FileType,
    Page,
    PagedDocument,
    PagedExtractor,
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
_TITLES = {
    Shape.RST: r"""(?m)\A\s{0,99}(?:^([=\-~^"'`#*+])\1{2,99}\n)? {0,9}(\S.*)\n([=\-~^"'`#*+])\3{2,99}$""",
    Shape.ASCIIDOC: r"(?m)^()=[ \t]+(\S.*)$",
    Shape.ORG: r"(?mi)^()(?:#\+title:|\*)[ \t]+(\S.*)$",
}
_FRONT_LINE = r"""(?mi)^(title|author|date|lang|language):[ \t]*["']?([^\n]*?)["']?[ \t]*$"""
_DATE = r"\d{4}-\d{2}(?:-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?)?"
_MAX_PROPERTY = 500


class TextExtractor:
    """Keeps the text unchanged, with the line numbers of the file."""

    version = "2"

    def __init__(self, name: str = "text") -> None:
        self.name = name

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
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
        if value and (name not in ("created", "modified") or re.fullmatch(_DATE, value))
    }
    if not kept:
        return extracted
    properties = replace(extracted.properties, **kept)
    return replace(extracted, properties=properties)


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
    return "`" * max(3, 1 + max(map(len, re.findall("`{3,}", text)), default=0))


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
    found = re.search(_TITLES[shape], text[:_TITLE_CHARS]) if shape in _TITLES else None
    return found[2].strip() if found else None


def markdown_title(text: str) -> str | None:
    """Title in the front matter, or the first heading of the first level."""
    stated = _front_matter(text)
    if stated.get("title"):
        return stated["title"]
    found = re.search(r"(?m)^#[ \t]+(\S.*)$", text[:_TITLE_CHARS])
    if found is None:
        return None
    line = found[1]
    # The first character belongs to the title, even a hash sign.
    return line[0] + line[1:].rstrip("#").rstrip()


def _front_matter(text: str) -> dict[str, str]:
    """Simple values of the YAML block at the start of a Markdown text."""
    front = re.match(r"(?s)---\n(.*?)\n(?:---|\.\.\.)\n", text[:_TITLE_CHARS])
    return {key.lower(): value for key, value in re.findall(_FRONT_LINE, front[1])} if front else {}


_ERRORS = {error.code: error for error in (ParserFailed, TimeBudgetExceeded, MemoryBudgetExceeded)}


def is_paged(extractor: Extractor) -> TypeGuard[PagedExtractor]:
    return hasattr(extractor, "open")


def extract_pages(
    extractor: PagedExtractor,
    content: Content,
    file_type: FileType,
    limits: ExtractLimits,
    pages: range | None = None,
) -> ExtractedText:
    """Extract pages of a document: those with these numbers, or all; see ``Extractor.extract``."""
    with closing(extractor.open(content, limits)) as document:
        wanted = wanted_pages(document.page_count, pages)
        head = document_head(extractor, document, file_type, first=1 in wanted)
        until = math.inf if pages is None else time.process_time() + limits.batch_seconds
        found: list[Page] = []
        chars = 0
        for number in wanted:
            found.append(read_page(document, number))
            chars = check_length(chars + len(found[-1].text), limits)
            if time.process_time() > until:
                break
        return with_pages(head, found)


def wanted_pages(count: int, pages: range | None) -> range:
    """Numbers of the pages in a range, or of all pages of the document."""
    return range(1, count + 1) if pages is None else range(max(1, pages.start), min(count + 1, pages.stop))


def document_head(
    extractor: PagedExtractor, document: PagedDocument, file_type: FileType, *, first: bool
) -> ExtractedText:
    """All of a document except the pages.

    ``first``: with the warnings and attachments, which take long to read and are wanted once.
    """
    return ExtractedText(
        pages=(),
        file_type=file_type,
        shape=extractor.shape,
        page_count=document.page_count,
        title=document.title,
        warnings=document.warnings if first else (),
        properties=document.properties,
        attachments=document.attachments if first else (),
    )


def with_pages(head: ExtractedText, found: Sequence[Page]) -> ExtractedText:
    """The document with these pages. Raises an ``UnreadableDocument`` if every page failed."""
    failures = [(page.number, page.failure_code, page.failure) for page in found if page.failure]
    refuse_unreadable(head.page_count, failures)
    return replace(
        head,
        pages=tuple(found),
        warnings=head.warnings + failure_warnings([number for number, *_ in failures]),
    )


def refuse_unreadable(page_count: int, failures: Sequence[tuple[int, str, str]]) -> None:
    """Raise the error of the first failure (page number, code, reason) if all pages failed."""
    if failures and len(failures) >= page_count:
        _, code, reason = failures[0]
        if code in _ERRORS:
            raise _ERRORS[code](reason)
        raise DocumentDamaged(f"no page can be read: {reason}")


def failure_warnings(numbers: Sequence[int], unit: str = "page") -> tuple[str, ...]:
    return (f"{unit}s that cannot be read: {', '.join(map(str, numbers))}",) if numbers else ()


def read_page(document: PagedDocument, number: int) -> Page:
    """Read one page. An error becomes the failure of the page, except a lack of memory."""
    try:
        return document.page(number)
    except MemoryError:
        raise
    except UnreadableDocument as error:
        return Page(number, "", failure=error.message, failure_code=error.code)
    except Exception as error:  # noqa: BLE001 - parsers of other projects raise anything
        reason = f"the parser failed: {type(error).__name__}: {error}"[:500]
        return Page(number, "", failure=reason, failure_code=ParserFailed.code)


def check_length(chars: int, limits: ExtractLimits) -> int:
    """The number of characters. Raises ``DocumentTooLarge`` if there are too many."""
    if chars > limits.text_chars:
        raise DocumentTooLarge(f"the text has more than {limits.text_chars:,} characters")
    return chars


MAX_CHARS = 500
_ISO_DATE = r"\d{4}(?:-\d\d(?:-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?)?)?"
_NO_TITLES = frozenset(
    [
        "",
        "untitled",
        "untitled document",
        "powerpoint presentation",
        "powerpoint-präsentation",
        "word document",
    ]
)


def one_line(text: str) -> str:
    """Clean a value and join its lines; cut after 500 characters."""
    return " ".join(clean(text).split())[:MAX_CHARS].rstrip()


def stated_title(text: str) -> str | None:
    """A title, unless known as a program's default title."""
    title = one_line(text)
    return None if title.lower() in _NO_TITLES else title


def stated_date(text: str) -> str:
    """An ISO 8601 date, or nothing."""
    value = one_line(text)
    return value if re.fullmatch(_ISO_DATE, value) and value > "1601-01-02" else ""
