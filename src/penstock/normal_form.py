"""Unicode normal forms in linear time, also of texts with endless runs of combining marks."""

from __future__ import annotations

import functools
import re
import unicodedata
from itertools import chain
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]

_LONG = 64
"""Marks in a row from which on they are sorted here: the library's own sort takes time with their square."""

MARKED = (range(0x300, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x1F000))
"""Where combining marks stand among the codes: between lie the ideographs and Hangul."""
DECOMPOSED = "\u0f73\u0f75\u0f81"
"""Characters that are no marks but decompose into two."""
COMPATIBLE = "\uff9e\uff9f"
"""The same for the forms of compatibility. Unicode promises that there will be no others."""


def normalized(form: Form, text: str) -> str:
    """The same as ``unicodedata.normalize``."""
    if text.isascii():
        return text
    # Of 64 marks in a row one stands at a place that 64 divides.
    if mark_class().search(text[::_LONG]):
        taken_apart: Form = "NFKD" if "K" in form else "NFD"
        text = _runs().sub(lambda run: _in_order(taken_apart, run[0]), text)
    return unicodedata.normalize(form, text)


def _in_order(form: Form, run: str) -> str:
    """The canonical order: by class, and marks of one class as they stood."""
    marks = chain.from_iterable([unicodedata.normalize(form, char) for char in run])
    pieces: list[str] = []
    waiting: list[str] = []
    for mark in marks:
        if unicodedata.combining(mark):
            waiting.append(mark)
            continue
        pieces += (*sorted(waiting, key=unicodedata.combining), mark)
        waiting.clear()
    return "".join([*pieces, *sorted(waiting, key=unicodedata.combining)])


@functools.cache
def mark_class() -> re.Pattern[str]:
    """A combining mark, or a character that may become some."""
    marks = [char for char in map(chr, chain(*MARKED)) if unicodedata.combining(char)]
    return re.compile(f"[{''.join(marks)}{DECOMPOSED}{COMPATIBLE}]")


@functools.cache
def _runs() -> re.Pattern[str]:
    return re.compile(f"{mark_class().pattern}{{{_LONG},}}")
