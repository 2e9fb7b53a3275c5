"""Text that every store keeps as it is: strict JSON of payloads and results, Unicode normal forms. Pure."""

from __future__ import annotations

import functools
import hashlib
import math
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.errors import InvalidPayload, InvalidText, PayloadTooLarge

_Container: TypeAlias = dict[Any, Any] | list[Any] | tuple[Any, ...]

_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder()


def fingerprint(parts: Mapping[str, object]) -> str:
    """16 hex digits of the names and values given, in any order."""
    canonical = msgspec.json.encode(dict(sorted(parts.items())))
    return hashlib.sha256(canonical).hexdigest()[:16]


def encode_payload(payload: Mapping[str, Any], *, max_bytes: int | None) -> str:
    """Encode a payload as compact JSON; refuse values which JSON would change, and too large ones."""
    if not isinstance(payload, dict | Mapping):
        raise InvalidPayload(f"payload: expected an object, got {type(payload).__name__}")
    return encode_strictly("payload", dict(payload), max_bytes=max_bytes)


def encode_strictly(what: str, value: object, *, max_bytes: int | None) -> str:
    """Encode a value as compact JSON that decodes to the same value; ``what`` names it in errors."""
    try:
        encoded = _encode(what, value)
        if max_bytes is not None and len(encoded) > max_bytes:
            raise PayloadTooLarge(f"{what} is {len(encoded):,} bytes, the limit is {max_bytes:,}")
        # msgspec writes NaN as null, bytes as base64, the key 1 as "1": none of them decodes to the same.
        # To name the place takes a walk in Python, so only suspicious values are walked.
        if b"\\u0000" in encoded or _decoder.decode(encoded) != value:
            _refuse_first_flaw(what, value)
    except RecursionError:
        raise InvalidPayload(f"{what}: nested too deeply, or contains itself") from None
    return encoded.decode()


def _encode(what: str, value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        _refuse_first_flaw(what, value)
        raise InvalidPayload(f"{what}: {error}") from None


def _refuse_first_flaw(what: str, value: object) -> None:
    """Walk the value and raise for the first flaw. Tuples pass: they become lists."""
    places: list[tuple[str, object]] = [(what, value)]
    walked: set[int] = set()
    for place, value in places:  # the list grows, so that the outermost flaw is found first
        if not isinstance(value, dict | list | tuple):
            _refuse_flawed_leaf(place, value)
        elif id(value) not in walked:  # a payload may contain itself
            walked.add(id(value))
            places.extend(_parts(place, value))


def _parts(place: str, value: _Container) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        yield from ((f"{place}[{index}]", part) for index, part in enumerate(value))
        return
    for key, part in value.items():
        _refuse_flawed_key(place, key)
        yield f"{place}.{key}"[:200], part


def _refuse_flawed_key(place: str, key: object) -> None:
    if not isinstance(key, str):
        raise InvalidPayload(f"{place}: keys must be strings, got {key!r}")
    _refuse_flawed_text(f"a key of {place}", key)


def _refuse_flawed_leaf(place: str, value: object) -> None:
    if isinstance(value, str):
        _refuse_flawed_text(place, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidPayload(f"{place}: {value} is not a JSON number")
    elif value is not None and not isinstance(value, bool | int):
        raise InvalidPayload(f"{place}: {type(value).__name__} is not a JSON value")


def _refuse_flawed_text(place: str, text: str) -> None:
    if "\0" in text:
        raise InvalidText(f"{place} holds a NUL character")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidText(f"{place} holds a lone surrogate")


Form: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]

_LONG = 64
"""Length of a run of marks to sort here: the library's sort takes quadratic time."""

_FIRST = "\u0300"
_MARKED = (range(0x300, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x1F000))
"""Code ranges with combining marks; ideographs and Hangul lie between them."""
_DECOMPOSED = "\u0f73\u0f75\u0f81"
"""Characters, not marks themselves, which decompose into two marks."""
_COMPATIBLE = "\uff9e\uff9f"
"""The same for the compatibility forms. Unicode guarantees that the set stays closed."""


def normalized(form: Form, text: str) -> str:
    """Normalise a text as ``unicodedata.normalize`` does, but long runs of marks in linear time, too."""
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
    found = (char for char in map(chr, chain(*_MARKED)) if unicodedata.combining(char))
    return frozenset((*found, *_DECOMPOSED, *_COMPATIBLE))
