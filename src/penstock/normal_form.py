"""Unicode normal forms in linear time, also of texts with endless runs of combining marks."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterator
from itertools import chain
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]

_LONG = 64
"""Length of a run of marks to sort here: the library's sort takes quadratic time."""

_FIRST = "\u0300"
MARKED = (range(0x300, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x1F000))
"""Code ranges with combining marks; ideographs and Hangul lie between them."""
DECOMPOSED = "\u0f73\u0f75\u0f81"
"""Characters, not marks themselves, which decompose into two marks."""
COMPATIBLE = "\uff9e\uff9f"
"""The same for the compatibility forms. Unicode guarantees that the set stays closed."""


def normalized(form: Form, text: str) -> str:
    """Normalise a text with the result of ``unicodedata.normalize``, in linear time."""
    if text.isascii():
        return text
    # Of 64 marks in a row, one is at an index divisible by 64.
    sample = text[::_LONG]
    if max(sample, default="") >= _FIRST and not marks().isdisjoint(sample):
        taken_apart: Form = "NFKD" if "K" in form else "NFD"
        pieces: list[str] = []
        done = 0
        for start, stop in _long_runs(text, sample):
            pieces += (text[done:start], _in_order(taken_apart, text[start:stop]))
            done = stop
        text = "".join((*pieces, text[done:])) if pieces else text
    return unicodedata.normalize(form, text)


def _long_runs(text: str, sample: str) -> Iterator[tuple[int, int]]:
    found = marks()
    stop = 0
    for place in (_LONG * index for index, char in enumerate(sample) if char in found):
        if place < stop:
            continue
        start = place
        while start > stop and text[start - 1] in found:
            start -= 1
        stop = place + 1
        while stop < len(text) and text[stop] in found:
            stop += 1
        if stop - start >= _LONG:
            yield start, stop


def _in_order(form: Form, run: str) -> str:
    """Sort marks canonically: by combining class, stable within a class."""
    pieces: list[str] = []
    waiting: list[str] = []
    for mark in chain.from_iterable([unicodedata.normalize(form, char) for char in run]):
        if unicodedata.combining(mark):
            waiting.append(mark)
            continue
        pieces += (*sorted(waiting, key=unicodedata.combining), mark)
        waiting.clear()
    return "".join([*pieces, *sorted(waiting, key=unicodedata.combining)])


@functools.cache
def marks() -> frozenset[str]:
    """Combining marks, and characters which decompose into some."""
    found = (char for char in map(chr, chain(*MARKED)) if unicodedata.combining(char))
    return frozenset((*found, *DECOMPOSED, *COMPATIBLE))
