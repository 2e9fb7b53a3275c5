"""Quality of a PDF's text layer: decides by measure which pages need OCR.

The three measures of the text are shares between 0 and 1, taken before control characters become blanks.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from string import ascii_letters

import msgspec

from penstock.pipeline.extract.protocol import OcrReason

FEW_CHARS = 20
"""Number of characters below which a layer is not judged, and a large picture counts more than it."""
ODD_SHARE = 0.2
FREQUENT_SHARE = 0.3
NOISE_SHARE = 0.3
LARGE_PICTURE = 0.5
FULL_PICTURE = 0.8
MOSTLY = 0.5

HYPHENS = "\ufffe\uffff\x02"
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
    """Measures of a page's text layer."""

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
    if layer.chars < FEW_CHARS:
        return None
    if layer.odd >= ODD_SHARE:
        return OcrReason.UNDECODABLE
    if layer.frequent is not None and layer.frequent < FREQUENT_SHARE:
        return OcrReason.SHIFTED
    if layer.noise >= NOISE_SHARE:
        return OcrReason.NOISE
    return None


def incomplete(layer: LayerMeasures, shown: Shown, *, has_text: bool) -> OcrReason | None:
    """The reason why a page needs OCR in spite of a usable layer, or None.

    ``has_text``: the page has text, be it of the layer, of form fields or of notes.
    """
    if not has_text:
        return OcrReason.NO_TEXT if shown.anything else None
    if layer.chars < FEW_CHARS and shown.pictures >= LARGE_PICTURE:
        return OcrReason.SPARSE
    if shown.hidden >= MOSTLY and shown.pictures >= FULL_PICTURE:
        return OcrReason.HIDDEN_LAYER
    if shown.narrow >= MOSTLY and (layer.cjk >= MOSTLY or layer.chars < FEW_CHARS):
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
    if char.isspace() or char in HYPHENS:
        return _BLANK
    if char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs"):
        return _ODD
    first = unicodedata.name(char, "").partition(" ")[0] if char.isalpha() else ""
    return "CJK" if first in _CJK else "" if first in _NO_SCRIPT else first
