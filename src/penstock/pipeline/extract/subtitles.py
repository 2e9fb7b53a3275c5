"""Subtitles (SubRip and WebVTT): the spoken lines, without times, styles and notes."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from penstock.pipeline.extract.charset import clean, decode
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Shape
from penstock.pipeline.extract.text import one_page

_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_SPEAKER = re.compile(r"<v(?:\.[^\s>]*)?[ \t]+([^>]{1,100})>")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>|<[\d:.]{5,12}>|\{\\[^{}]{0,100}\}")
_PAUSE_S = 4.0
"""Seconds without a spoken line after which a new paragraph begins."""


class SubtitleExtractor:
    """One line for each subtitle, in paragraphs between pauses. Positions are lines of the file."""

    name = "subtitles"
    version = "1"

    def extract(
        self,
        content: Content,
        file_type: FileType,
        limits: ExtractLimits,
        pages: range | None = None,  # noqa: ARG002 - there is one page
    ) -> ExtractedText:
        decoded = decode(content.data)
        written = clean(decoded.text)
        lines: list[str] = []
        positions: list[int] = []
        for line, position in _spoken(written.split("\n")):
            lines.append(line)
            positions.append(position)
        if not lines and written.strip():
            # Not what the name says.
            return one_page(
                written,
                file_type,
                limits,
                shape=Shape.PROSE,
                line_numbers=True,
                decoded=decoded,
                warnings=("no subtitles found: kept as written",),
            )
        return one_page(
            clean("\n".join(lines)),
            file_type,
            limits,
            shape=Shape.PROSE,
            line_numbers=tuple(positions),
            decoded=decoded,
        )


def _spoken(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Spoken lines with the numbers of their lines in the file; a blank line before a new paragraph."""
    ended = 0.0
    last = ""
    place = 0
    while place < len(lines):
        times = _TIMES.match(lines[place])
        place += 1
        if times is None:
            continue
        first = place
        while place < len(lines) and lines[place].strip():
            place += 1
        spoken = [text for text in map(_plain, lines[first:place]) if text]
        # Rolling captions repeat the line before.
        if spoken and spoken[0] == last:
            del spoken[0]
        if not spoken:
            continue
        started = _seconds(*times.group(1, 2, 3, 4))
        if last and started - ended >= _PAUSE_S:
            yield "", first + 1
        yield " ".join(spoken), first + 1
        last = spoken[-1]
        ended = _seconds(*times.group(5, 6, 7, 8))


def _plain(line: str) -> str:
    if "<" in line or "{" in line:
        line = _TAG.sub("", _SPEAKER.sub(r"\1: ", line))
    if "&" in line:
        line = html.unescape(line)
    return " ".join(line.split())


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + int(fraction.ljust(3, "0")) / 1000
