"""Frames of chunks on the picture of their page: a chunk's text is found among the placed words.

Only letters and digits are compared. Marks of Markdown, hyphens at line ends and white space differ between a
chunk and the page.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TypeAlias

import msgspec

from penstock.named_tuple import NamedTuple
from penstock.pipeline.extract.protocol import PlacedWord

FEWEST = 4
"""Letters of a line that is looked for alone; shorter ones are found everywhere."""
MOST_COLUMNS = 50
"""Boxes of a chunk above which it gets one around all of them."""

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom."""


class ChunkFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk on the picture of its page.

    ``boxes``: left, top, right and bottom as parts of the picture's width and height, one box for each column
    that the text runs through.
    """

    chunk_id: str
    boxes: list[Box]


class PageFrames(msgspec.Struct, frozen=True, kw_only=True):
    """The chunks of a page whose place on its picture is known."""

    source_id: str
    page: int
    frames: list[ChunkFrame]


class _Layer(NamedTuple):
    """The letters of a page, and the word that each of them belongs to."""

    letters: str
    words: list[PlacedWord]
    owners: list[int]


def frames_of(words: Sequence[PlacedWord], chunks: Sequence[tuple[str, str]]) -> list[ChunkFrame]:
    """Frames of chunks, given by id and text in the order of the page; without those that are not found."""
    layer, found, begun = _layer(words), [], 0
    for chunk_id, text in chunks:
        spans = list(_spans(layer.letters, text, begun))
        if spans:
            # Chunks repeat the end of the one before, but not its start.
            begun = spans[0][0]
            found.append(ChunkFrame(chunk_id=chunk_id, boxes=_boxes(layer, spans)))
    return found


def _letters(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(filter(str.isalnum, folded))


def _layer(words: Sequence[PlacedWord]) -> _Layer:
    spelled = [_letters(word.text) for word in words]
    owners = [number for number, letters in enumerate(spelled) for _ in letters]
    return _Layer("".join(spelled), list(words), owners)


def _spans(letters: str, text: str, begun: int) -> Iterator[tuple[int, int]]:
    """Ranges of letters with the text: as a whole, else by its lines."""
    whole = _letters(text)
    at = letters.find(whole, begun) if whole else -1
    if at >= 0:
        yield at, at + len(whole)
        return
    for line in map(_letters, text.splitlines()):
        at = letters.find(line, begun) if len(line) >= FEWEST else -1
        if at >= 0:
            begun = at + len(line)
            yield at, begun


def _boxes(layer: _Layer, spans: Sequence[tuple[int, int]]) -> list[Box]:
    numbers = dict.fromkeys(owner for first, last in spans for owner in layer.owners[first:last])
    boxes: list[Box] = []
    before: PlacedWord | None = None
    for word in map(layer.words.__getitem__, numbers):
        own = (word.left, word.top, word.right, word.bottom)
        # A word that is wholly above the one before is in the next column.
        if before is not None and word.bottom >= before.top:
            own = _around(boxes.pop(), own)
        boxes.append(own)
        before = word
    columns = _apart(boxes) if len(boxes) <= MOST_COLUMNS else [reduce(_around, boxes)]
    return [(round(a, 4), round(b, 4), round(c, 4), round(d, 4)) for a, b, c, d in columns]


def _apart(boxes: Sequence[Box]) -> list[Box]:
    """The boxes with those joined that overlap: labels of a drawing are not columns."""
    found: list[Box] = []
    for box in boxes:
        joined = box
        while touching := [one for one in found if _overlap(one, joined)]:
            found = [one for one in found if one not in touching]
            joined = reduce(_around, touching, joined)
        found.append(joined)
    return found


def _around(one: Box, other: Box) -> Box:
    return (*map(min, one[:2], other[:2]), *map(max, one[2:], other[2:]))  # type: ignore[return-value]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
