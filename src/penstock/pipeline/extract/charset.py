"""Character sets: from bytes to text acceptable to every store."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from penstock.errors import UnsupportedType
from penstock.normal_form import normalized

SNIFFED = 8192
"""Bytes from the start that decide between binary and text."""

_TOO_FEW = 4
"""With fewer characters outside ASCII, the encoding cannot be guessed."""

SAMPLED = 128 * 1024
"""Bytes used to guess a legacy encoding."""

# The longer mark first: the mark of UTF-32 begins with the mark of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

# Without ESC, SO and SI: the ISO 2022 encodings use them.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b\x0e\x0f")) + b"\x7f"
_UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPES = ((b"\x1b$)C", "iso2022_kr"), (b"\x1b$", "iso2022_jp_2"), (b"\x1b(J", "iso2022_jp_2"))


_UNLIKELY = (
    "cp037 cp273 cp424 cp500 cp875 cp1026 cp1140 cp437 cp720 cp737 cp775 cp850 cp852 cp856 cp857 cp858 cp860 "
    "cp861 cp862 cp863 cp864 cp865 cp869 cp1006 cp1125 hp_roman8 kz1048 ptcp154 mac_greek mac_iceland "
    "mac_latin2 mac_roman mac_turkish utf_7 utf_16 utf_32"
).split()
"""Encodings of mainframes, and of DOS outside Russia. A guess of one of these is nearly always wrong."""


_NOT_OF_FILES = frozenset("idna punycode raw_unicode_escape undefined unicode_escape utf_7".split())
"""Codecs of Python that are not encodings of files. Decoding punycode takes quadratic time."""


class Decoded(NamedTuple):
    text: str
    encoding: str
    guessed: bool
    """Nothing in the bytes names the encoding; this is the most likely one."""
    replaced: int
    """Characters that could not be decoded and became U+FFFD."""


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """Decode by byte order mark, strict UTF-8, the declared encoding, or the most likely legacy encoding.

    Raises UnsupportedType if the bytes are not text.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decoded(data, encoding)
    if looks_binary(data):
        raise UnsupportedType("the content is binary, not text")
    encoding_found = wide_encoding(data[:SNIFFED]) or _escaped_encoding(data)
    if encoding_found is not None:
        return _decoded(data, encoding_found)
    for encoding in filter(None, ("utf-8", _known(declared))):
        try:
            return Decoded(data.decode(encoding), encoding, False, 0)
        except (UnicodeDecodeError, LookupError):
            continue
    return _guessed(data)


def clean(text: str) -> str:
    """Normalise text: ``\\n`` line ends, NFC, and no NUL or lone surrogate, which stores refuse."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = normalized("NFC", text.removeprefix("\ufeff"))
    if "\x00" in text or not text.isascii():
        text = _UNKEEPABLE.sub(lambda found: "" if found[0] == "\x00" else "\ufffd", text)
    return text


def looks_binary(head: bytes) -> bool:
    """Detect binary data: NULs outside UTF-16 and UTF-32, or more than a few control characters."""
    head = head[:SNIFFED]
    if not head or head.startswith(tuple(mark for mark, _ in _MARKS)):
        return False
    if b"\x00" in head:
        return wide_encoding(head) is None
    control = len(head) - len(head.translate(None, _CONTROL))
    return control > len(head) // 20


def wide_encoding(head: bytes) -> str | None:
    """Detect UTF-16 or UTF-32 without a mark: most high bytes are equal, and some are NUL."""
    if b"\x00" not in head or len(head) < 4:
        return None
    for width, encodings in ((4, ("utf-32-be", "utf-32-le")), (2, ("utf-16-be", "utf-16-le"))):
        usable = head[: len(head) - len(head) % width]
        count = len(usable) // width
        for encoding, high, low in zip(encodings, (0, width - 1), (width - 1, 0), strict=True):
            lane = usable[high::width]
            commonest = max(map(lane.count, set(lane)))
            shared = 0 in lane and commonest > count / 2 and usable[low::width].count(0) < count / 100
            if shared and _reads_well(usable, encoding):
                return encoding
    return None


def _reads_well(head: bytes, encoding: str) -> bool:
    text = head.decode(encoding, "replace")
    odd = sum(char == "\ufffd" or (char < " " and char not in "\t\n\r\f") for char in text)
    return odd <= len(text) // 50


def _escaped_encoding(data: bytes) -> str | None:
    """Detect the seven-bit encodings of East Asia by their escape sequences; they are valid UTF-8 as well."""
    if b"\x1b" not in data[:SAMPLED]:
        return None
    for escape, encoding in _ESCAPES:
        if escape in data[:SAMPLED]:
            try:
                data.decode(encoding)
            except UnicodeDecodeError:
                return None
            return encoding
    return None


def _known(encoding: str | None) -> str | None:
    """The codec for a declared name. As in browsers, Latin-1 means Windows-1252."""
    if encoding is None:
        return None
    try:
        name = codecs.lookup(encoding.strip()).name
    except (LookupError, ValueError):
        return None
    if name.replace("-", "_") in _NOT_OF_FILES:
        return None
    return {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "shift_jis": "cp932"}.get(
        name, name
    )


def _decoded(data: bytes, encoding: str) -> Decoded:
    text = data.decode(encoding, "replace")
    return Decoded(text, encoding, False, text.count("\ufffd"))


def _guessed(data: bytes) -> Decoded:
    from charset_normalizer import from_bytes

    replaced = data.decode("utf-8", "replace")
    bad = replaced.count("\ufffd")
    foreign = len(replaced) - len(replaced.encode("ascii", "ignore"))
    if foreign > 10 * bad:
        # A few bytes are wrong, or the end is cut off. Another encoding would garble all of the text.
        return Decoded(replaced, "utf-8", False, bad)
    if foreign < _TOO_FEW:
        return Decoded(data.decode("cp1252", "replace"), "cp1252", True, 0)
    best = from_bytes(data[:SAMPLED], cp_exclusion=_UNLIKELY).best()
    encoding = _sibling(data[:SAMPLED], best.encoding) if best is not None else "cp1252"
    text = data.decode(encoding, "replace")
    return Decoded(text, encoding, True, text.count("\ufffd"))


def _sibling(data: bytes, encoding: str) -> str:
    """Choose between Windows-1250 and ISO 8859-2, which place š, ť and ž differently."""
    if encoding not in ("cp1250", "iso8859_2"):
        return encoding
    if re.search(rb"[\x80-\x9f]", data):
        return "cp1250"
    letters = {name: sum(map(str.isalpha, data.decode(name, "replace"))) for name in ("cp1250", "iso8859_2")}
    return "iso8859_2" if letters["iso8859_2"] >= letters["cp1250"] else "cp1250"
