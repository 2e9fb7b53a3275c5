"""Text layer of a PDF page as pdfium reads it: its text, its words with their places, and its quality.

The quality decides by measure which pages need OCR. Text outside the page's box is left out.
"""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from string import ascii_letters
from typing import TYPE_CHECKING

import msgspec

from penstock.pipeline.extract.charset import clean
from penstock.pipeline.extract.protocol import OcrReason, PlacedWord

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage


MOST_CHARS = 200_000
"""Characters of a page that are looked at."""
_GRID = 1_000_000
"""Pixels of the picture on which places are calculated."""


def placed_words(page: PdfPage) -> tuple[PlacedWord, ...]:
    """Words of the page's text layer, in its order. Those outside the picture are left out."""
    layer = page.get_textpage()
    try:
        return _words(page, layer)
    finally:
        layer.close()


def _words(page: PdfPage, layer: PdfTextPage) -> tuple[PlacedWord, ...]:
    import pypdfium2.raw as pdfium

    found: list[PlacedWord] = []
    text: list[str] = []
    corners: list[tuple[float, float]] = []
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    for at in range(min(layer.count_chars(), MOST_CHARS)):
        letter = chr(min(pdfium.FPDFText_GetUnicode(layer, at), 0x10FFFF))
        if letter.isspace() or letter == "\0":
            _end_word(found, page, text, corners)
        elif pdfium.FPDFText_GetCharBox(layer, at, left, right, bottom, top):
            text.append(letter)
            corners += [(left.value, bottom.value), (right.value, top.value)]
    _end_word(found, page, text, corners)
    return tuple(found)


def _end_word(
    found: list[PlacedWord], page: PdfPage, text: list[str], corners: list[tuple[float, float]]
) -> None:
    if text:
        across, up = zip(*corners, strict=True)
        ends = [_on_picture(page, min(across), min(up)), _on_picture(page, max(across), max(up))]
        (left, right), (top, bottom) = (sorted(sides) for sides in zip(*ends, strict=True))
        if left < 1 and right > 0 and top < 1 and bottom > 0:
            word = "".join(text).encode(errors="ignore").decode()
            found.append(PlacedWord(word, max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0)))
    text.clear()
    corners.clear()


def _on_picture(page: PdfPage, x: float, y: float) -> tuple[float, float]:
    """A point of the page as parts of the picture's width and height, with the page's box and rotation."""
    import pypdfium2.raw as pdfium

    across, down = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDF_PageToDevice(page, 0, 0, _GRID, _GRID, 0, x, y, across, down)
    return across.value / _GRID, down.value / _GRID


_FEW_CHARS = 20
"""Number of characters below which a layer is not judged, and a large picture counts more than it."""
_ODD_SHARE = 0.2
_FREQUENT_SHARE = 0.3
_NOISE_SHARE = 0.3
_LARGE_PICTURE = 0.5
_FULL_PICTURE = 0.8
_MOSTLY = 0.5

_HYPHENS = "\ufffe\uffff\x02"
"""Characters as which pdfium returns a hyphen at the end of a line."""
_ASCII = bytes(range(128))
_LETTERS = ascii_letters.encode()
_FREQUENT = b"eaionrtsEAIONRTS"
"""Frequent letters of Latin script: .39 or more of the letters on good pages, .11 to .21 on shifted ones."""
_ASCII_VOWELS = b"aeiouyAEIOUY"
_IGNORED = b" \t\n\r\f\v\x02"
"""White space and hyphens."""
_CONTROLS = bytes({*range(32), 127} - {*_IGNORED})
_MIN_LETTERS = 60
_MIN_LETTER_SHARE = 0.3
_NOISE_CHARS = 100
_FOREIGN_SHARE = 0.03
_VOWEL_SHARE = 0.33
"""Words are looked at one by one if there are more foreign letters, or fewer vowels, than these shares."""
_MAX_CHANGES = 0.3
"""Changes between Latin and CJK per letter, above which a word is noise."""
_VOWELS = frozenset("aeiouyæøœıəɛɔ")

_ODD, _BLANK = "odd", "blank"
_WORD = re.compile(r"[^\W\d_]+")
_CJK = frozenset(
    "CJK HIRAGANA KATAKANA KATAKANA-HIRAGANA HANGUL BOPOMOFO IDEOGRAPHIC HALFWIDTH FULLWIDTH".split()
)
_NO_SCRIPT = frozenset("MODIFIER COMBINING MATHEMATICAL MICRO OHM KELVIN ANGSTROM SCRIPT".split())


class LayerMeasures(msgspec.Struct, frozen=True):
    """Measures of a page's text layer.

    ``odd``, ``frequent`` and ``noise`` are shares between 0 and 1, taken before control characters become
    blanks.
    """

    chars: int
    """Number of characters that are no white space."""
    odd: float = 0.0
    """Share of control, private, unassigned and replacement characters."""
    frequent: float | None = None
    """Share of frequent letters among the ASCII letters; None if there are too few of them."""
    noise: float = 0.0
    """Share of words that mix scripts or have no vowel."""
    cjk: float = 0.0
    """Share of Chinese, Japanese and Korean characters."""


class Shown(msgspec.Struct, frozen=True):
    """Objects on a page: shares of the page's area, and of the text objects."""

    anything: bool
    pictures: float = 0.0
    """Share of the page covered by pictures."""
    hidden: float = 0.0
    """Share of invisible text objects."""
    narrow: float = 0.0
    """Share of text objects with height and without width."""


def measure(raw: str) -> LayerMeasures:
    """Measure the text of a page as pdfium returns it."""
    plain = raw.encode("utf-8", "surrogatepass")
    kinds = dict.fromkeys(("", "LATIN", "CJK", _ODD, _BLANK), 0)
    if not raw.isascii():
        for char, count in Counter(plain.translate(None, _ASCII).decode("utf-8", "surrogatepass")).items():
            kind = _kind(char)
            kinds[kind] = kinds.get(kind, 0) + count
    chars = len(raw) - _count(plain, _IGNORED) - kinds[_BLANK]
    if not chars:
        return LayerMeasures(0)
    foreign = sum(kinds.values()) - sum([kinds[kind] for kind in ("", "LATIN", _ODD, _BLANK)])
    letters, vowels = _count(plain, _LETTERS), _count(plain, _ASCII_VOWELS) + kinds["LATIN"]
    enough = letters >= _MIN_LETTERS and letters > _MIN_LETTER_SHARE * chars
    sure = foreign < _FOREIGN_SHARE * chars and vowels > _VOWEL_SHARE * letters
    return LayerMeasures(
        chars=chars,
        odd=(_count(plain, _CONTROLS) + kinds[_ODD]) / chars,
        frequent=_count(plain, _FREQUENT) / letters if enough else None,
        noise=0.0 if sure or chars < _NOISE_CHARS else _noise(raw),
        cjk=kinds["CJK"] / chars,
    )


def unusable(layer: LayerMeasures) -> OcrReason | None:
    """The reason why a layer's text is garbage, or None for a usable one."""
    if layer.chars < _FEW_CHARS:
        return None
    if layer.odd >= _ODD_SHARE:
        return OcrReason.UNDECODABLE
    if layer.frequent is not None and layer.frequent < _FREQUENT_SHARE:
        return OcrReason.SHIFTED
    if layer.noise >= _NOISE_SHARE:
        return OcrReason.NOISE
    return None


def is_telling(layer: LayerMeasures) -> bool:
    """Check whether the layer alone tells that it is complete, so that few objects of the page are looked
    at."""
    return layer.chars >= _FEW_CHARS and layer.cjk < _MOSTLY


def incomplete(layer: LayerMeasures, shown: Shown, *, has_text: bool) -> OcrReason | None:
    """The reason why a page needs OCR in spite of a usable layer, or None.

    ``has_text``: the page has text, be it of the layer, of form fields or of notes.
    """
    if not has_text:
        return OcrReason.NO_TEXT if shown.anything else None
    if layer.chars < _FEW_CHARS and shown.pictures >= _LARGE_PICTURE:
        return OcrReason.SPARSE
    if shown.hidden >= _MOSTLY and shown.pictures >= _FULL_PICTURE:
        return OcrReason.HIDDEN_LAYER
    if shown.narrow >= _MOSTLY and (layer.cjk >= _MOSTLY or layer.chars < _FEW_CHARS):
        return OcrReason.VERTICAL
    return None


def _count(plain: bytes, wanted: bytes) -> int:
    return len(plain) - len(plain.translate(None, wanted))


def _noise(text: str) -> float:
    words = Counter(_WORD.findall(text))
    return sum(count for word, count in words.items() if _is_noise(word)) / max(1, words.total())


def _is_noise(word: str) -> bool:
    if word.isascii():
        return len(word) >= 5 and _VOWELS.isdisjoint(word.lower())
    scripts = [script for script in map(_kind, word) if script]
    kinds = set(scripts)
    if kinds == {"LATIN"}:
        plain = unicodedata.normalize("NFD", word.lower())
        return len(word) >= 5 and _VOWELS.isdisjoint(plain)
    if kinds == {"LATIN", "CJK"}:
        # Names and abbreviations stand among Chinese characters without a blank.
        changes = sum(one != other for one, other in pairwise(scripts))
        return changes > _MAX_CHANGES * len(scripts)
    return len(kinds) > 1


@lru_cache(maxsize=4096)
def _kind(char: str) -> str:
    """Script of a letter, by its Unicode name; empty for letters of every script, digits and signs."""
    if char.isascii():
        return "LATIN" if char.isalpha() else ""
    if char.isspace() or char in _HYPHENS:
        return _BLANK
    if char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs"):
        return _ODD
    first = unicodedata.name(char, "").partition(" ")[0] if char.isalpha() else ""
    return "CJK" if first in _CJK else "" if first in _NO_SCRIPT else first


_TOLERANCE = 1.0
"""Points by which text may stand out of the page's box."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f]")
_REMOVED_CONTROLS = bytes([*range(9), 11, *range(14, 32)])

Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


def raw_text(page: PdfPage) -> str:
    """Text of the page's layer, inside the page's box, unchanged."""
    layer = page.get_textpage()
    try:
        raw: str = layer.get_text_range(errors="surrogatepass")
        if not raw:
            return raw
        box = page.get_bbox()
        bounded = _bounded(layer, box, len(raw))
        # The bounded text has its cells glued, but shows at little cost that no character is outside.
        if _visible(bounded) == _visible(raw) or _all_inside(layer, box):
            return raw
        return _clipped(layer, box)
    finally:
        layer.close()


def normalised(raw: str) -> str:
    """The text with words joined at line ends, ``\\n`` line ends, NFC, and without control characters."""
    text = raw.replace("\r\n", "\n")
    for hyphen in _HYPHENS:
        if hyphen in text:
            text = text.replace(hyphen + "\n", "").replace(hyphen, "")
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded.translate(None, _REMOVED_CONTROLS)) < len(encoded):
        text = _CONTROL.sub(" ", text)
    return "\n".join([line.rstrip() for line in clean(text).split("\n")]).strip()


def _bounded(layer: PdfTextPage, box: Box, length: int) -> str:
    """Text inside the box, by one call where pypdfium2 makes two."""
    import pypdfium2.raw as pdfium

    left, bottom, right, top = box
    size = 2 * length + 64
    buffer = (ctypes.c_ushort * size)()
    count = pdfium.FPDFText_GetBoundedText(layer.raw, left, top, right, bottom, buffer, size)
    return bytes(buffer)[: 2 * count].decode("utf-16-le", "surrogatepass").rstrip("\0")


def _visible(text: str) -> int:
    """Number of characters besides spaces and line ends, some of which pdfium adds."""
    return len(text) - text.count(" ") - text.count("\r") - text.count("\n")


def _all_inside(layer: PdfTextPage, box: Box) -> bool:
    left, bottom, right, top = box
    for number in range(layer.count_rects()):
        one = layer.get_rect(number)
        if one[0] < left - _TOLERANCE or one[1] < bottom - _TOLERANCE:
            return False
        if one[2] > right + _TOLERANCE or one[3] > top + _TOLERANCE:
            return False
    return True


def _clipped(layer: PdfTextPage, box: Box) -> str:
    """Text of the characters that start inside the box."""
    parts: list[str] = []
    begun: int | None = None
    count = layer.count_chars()
    for at, inside in enumerate(_inside(layer, count, box)):
        if inside and begun is None:
            begun = at
        elif not inside and begun is not None:
            parts.append(layer.get_text_range(begun, at - begun, errors="surrogatepass"))
            begun = None
    if begun is not None:
        parts.append(layer.get_text_range(begun, count - begun, errors="surrogatepass"))
    return "".join([part if part[-1:].isspace() else part + "\n" for part in parts])


def _inside(layer: PdfTextPage, count: int, box: Box) -> Iterator[bool]:
    """Check for each character whether the place is on the page. Generated ones follow the one before.

    Its place is the start of its baseline, so that the letters of a line at the edge share one answer.
    """
    import pypdfium2.raw as pdfium

    left, bottom, right, top = box[0] - _TOLERANCE, box[1] - _TOLERANCE, box[2], box[3]
    x, y = ctypes.c_double(), ctypes.c_double()
    inside = False
    for at in range(count):
        generated = pdfium.FPDFText_IsGenerated(layer, at) == 1
        if not generated and pdfium.FPDFText_GetCharOrigin(layer, at, x, y):
            inside = left <= x.value <= right and bottom <= y.value <= top
        yield inside
