"""Quality of a PDF's text layer: decides by measure which pages need OCR.

The three measures of the text are shares between 0 and 1, taken before control characters become blanks.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import pairwise

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

_FREQUENT = frozenset("eaionrts")
"""Frequent letters of Latin script: .39 or more of the letters on good pages, .11 to .21 on shifted ones."""
_MIN_LETTERS = 60
_MIN_LETTER_SHARE = 0.3
_NOISE_CHARS = 100
_MAX_CHANGES = 0.3
"""Changes between Latin and CJK per letter, above which a word is noise."""
_VOWELS = frozenset("aeiouyæøœıəɛɔ")

_HYPHEN = re.compile("[\ufffe\uffff\x02]")
"""The form in which pdfium returns a hyphen at the end of a line."""
_WORD = re.compile(r"[^\W\d_]+")
_NO_VOWEL = re.compile(r"\b[b-df-hj-np-tv-xz]{5,}\b", re.IGNORECASE)
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
    """Objects on a page: shares of the page's area, and of its text objects."""

    anything: bool
    pictures: float = 0.0
    """Share of the page covered by pictures."""
    hidden: float = 0.0
    """Share of invisible text objects."""
    narrow: float = 0.0
    """Share of text objects without width."""


def measure(raw: str) -> LayerMeasures:
    """Measure the text of a page as pdfium returns it."""
    text = _HYPHEN.sub("", raw)
    counts = Counter(text)
    chars = sum(count for char, count in counts.items() if not char.isspace())
    if not chars:
        return LayerMeasures(0)
    odd = cjk = letters = frequent = 0
    for char, count in counts.items():
        if char.isascii():
            if char.isalpha():
                letters += count
                if char.lower() in _FREQUENT:
                    frequent += count
            elif (char < " " and char not in "\t\n\r\f") or char == "\x7f":
                odd += count
        elif _is_odd(char):
            odd += count
        elif _script(char) == "CJK":
            cjk += count
    enough = letters >= _MIN_LETTERS and letters > _MIN_LETTER_SHARE * chars
    return LayerMeasures(
        chars=chars,
        odd=odd / chars,
        frequent=frequent / letters if enough else None,
        noise=_noise(text) if chars >= _NOISE_CHARS else 0.0,
        cjk=cjk / chars,
    )


def unusable(layer: LayerMeasures) -> OcrReason | None:
    """The reason why a layer's text is garbage, or None if it can be used."""
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
    """The reason why a page needs OCR although its layer is no garbage, or None.

    ``has_text``: the page has text, be it of the layer, of form fields or of notes.
    """
    if not has_text:
        return OcrReason.NO_TEXT if shown.anything else None
    if layer.chars < FEW_CHARS and shown.pictures >= LARGE_PICTURE:
        return OcrReason.SPARSE
    if shown.hidden >= MOSTLY and shown.pictures >= FULL_PICTURE:
        return OcrReason.HIDDEN_LAYER
    if layer.cjk >= MOSTLY and shown.narrow >= MOSTLY:
        return OcrReason.VERTICAL
    return None


def _noise(text: str) -> float:
    if text.isascii():
        words = len(_WORD.findall(text))
        return len(_NO_VOWEL.findall(text)) / words if words else 0.0
    found = _WORD.findall(text)
    return sum(map(_is_noise, found)) / len(found) if found else 0.0


def _is_noise(word: str) -> bool:
    if word.isascii():
        return len(word) >= 5 and _VOWELS.isdisjoint(word.lower())
    scripts = [script for script in map(_script, word) if script]
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
def _is_odd(char: str) -> bool:
    return char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs")


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    """Script of a letter, by its Unicode name; empty for letters of every script."""
    if char.isascii():
        return "LATIN" if char.isalpha() else ""
    first = unicodedata.name(char, "").partition(" ")[0] if char.isalpha() else ""
    return "CJK" if first in _CJK else "" if first in _NO_SCRIPT else first
