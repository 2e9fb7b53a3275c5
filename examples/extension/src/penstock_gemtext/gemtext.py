"""The format of Gemini pages: text with one kind of line for links, headings, items and quotes."""

from __future__ import annotations

from penstock.pipeline.extract.charset import clean, decode
from penstock.pipeline.extract.file_types import AddedFormat
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Shape
from penstock.pipeline.extract.text import decoding_warnings, one_page


def _line(line: str) -> str:
    """A line as Markdown. A link ``=> ADDRESS LABEL`` becomes its label and address."""
    if not line.startswith("=>"):
        return line
    address, _, label = line[2:].strip().partition(" ")
    return f"[{label.strip() or address}]({address})"


class GemtextExtractor:
    """Reads Gemini pages as Markdown. The same bytes give the same page."""

    name = "gemtext"
    version = "1"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        """Extract the one page of a file."""
        decoded = decode(content.data)
        text = "\n".join(_line(line) for line in clean(decoded.text).split("\n"))
        return one_page(
            text,
            file_type,
            limits,
            shape=Shape.MARKDOWN,
            line_numbers=True,
            warnings=decoding_warnings(decoded),
        )


FORMAT = AddedFormat(
    file_type=FileType("text/gemini", "gemtext"), suffixes=("gmi", "gemini"), extractor=GemtextExtractor
)
