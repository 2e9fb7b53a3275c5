"""RTF documents as Markdown: headings, lists, tables, notes and comments."""

from __future__ import annotations

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract.office.markdown_page import MarkdownPage
from penstock.pipeline.extract.office.ooxml import no_text
from penstock.pipeline.extract.office.rtf_reader import RtfReader
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Properties,
    Shape,
)
from penstock.pipeline.extract.stated_values import one_line, stated_title

_PARTS = ("yr", "mo", "dy", "hr", "min", "sec")


class RtfExtractor:
    """One page with paragraph positions."""

    name = "rtf"
    version = "1"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        if not content.data.lstrip().startswith(b"{\\rtf"):
            raise DocumentDamaged("this is not an RTF document, in spite of its name")
        page = MarkdownPage(limits)
        reader = RtfReader(page.add)
        reader.read(content.data)
        written = page.page(positions=True)
        if not written.text and reader.has_pictures:
            raise no_text()
        return ExtractedText(
            pages=(written,),
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=1,
            title=stated_title(reader.info.get("title", "") or reader.first_heading),
            warnings=("the file ends in the middle of the text",) if reader.cut else (),
            properties=Properties(
                author=one_line(reader.info.get("author", "")),
                created=_date(reader.times.get("creatim", {})),
                modified=_date(reader.times.get("revtim", {})),
            ),
        )


def _date(parts: dict[str, int]) -> str:
    year, month, day, hour, minute, second = (parts.get(name, 0) for name in _PARTS)
    if not (1970 <= year < 10_000 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        return ""
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second % 60:02}"
