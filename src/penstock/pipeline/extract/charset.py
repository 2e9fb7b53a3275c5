"""Character sets: from bytes to text acceptable to every store.

A file may name its encoding, by labels of the web and of Windows. Otherwise it is found by the bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from contextlib import suppress

import msgspec

from penstock.errors import UnsupportedType
from penstock.strict_json import normalized

_LABELS = {
    "utf-8": "utf8 unicode11utf8 unicode20utf8 xunicode20utf8 utf8mb4",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso88592 iso885921987 isoir101 l2 latin2",
    "iso8859-3": "csisolatin3 iso88593 iso885931988 isoir109 l3 latin3",
    "iso8859-4": "csisolatin4 iso88594 iso885941988 isoir110 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso88595 iso885951988 isoir144",
    "iso8859-6": "arabic asmo708 csiso88596e csiso88596i csisolatinarabic ecma114 iso88596 iso88596e "
    "iso88596i iso885961987 isoir127",
    "iso8859-7": "csisolatingreek ecma118 elot928 greek greek8 iso88597 iso885971987 isoir126 suneugreek",
    "iso8859-8": "csiso88598e csiso88598i csisolatinhebrew hebrew iso88598 iso88598e iso88598i iso885981988 "
    "isoir138 logical visual",
    "iso8859-10": "csisolatin6 iso885910 isoir157 l6 latin6",
    "iso8859-13": "iso885913 latin7 l7",
    "iso8859-14": "iso885914 latin8 l8",
    "iso8859-15": "csisolatin9 iso885915 l9 latin9 latin0",
    "iso8859-16": "iso885916 latin10 l10",
    "koi8-r": "cskoi8r koi koi8 koi8r",
    "koi8-u": "koi8ru koi8u",
    "mac-roman": "csmacintosh mac macintosh xmacroman macroman applemac xmac",
    "mac-cyrillic": "xmaccyrillic xmacukrainian maccyrillic macukrainian",
    "mac-greek": "xmacgreek",
    "mac-turkish": "xmacturkish",
    "mac-iceland": "xmacicelandic xmaciceland",
    "mac-latin2": "xmacce xmaccentraleurroman xmaccentraleurope maccentraleurope",
    "mac-croatian": "xmaccroatian",
    "mac-romanian": "xmacromanian xmacromania",
    "cp874": "dos874 iso885911 tis620 windows874 cp874 ms874 xwindows874",
    "cp1250": "cp1250 windows1250 xcp1250 cp1250ee",
    "cp1251": "cp1251 windows1251 xcp1251 win1251",
    "cp1252": "ansix341968 ascii cp1252 cp819 csisolatin1 ibm819 iso88591 isoir100 iso885911987 l1 latin1 "
    "usascii windows1252 xcp1252 ansinew ansi",
    "cp1253": "cp1253 windows1253 xcp1253",
    "cp1254": "cp1254 csisolatin5 iso88599 iso885991989 isoir148 l5 latin5 windows1254 xcp1254",
    "cp1255": "cp1255 windows1255 xcp1255",
    "cp1256": "cp1256 windows1256 xcp1256",
    "cp1257": "cp1257 windows1257 xcp1257",
    "cp1258": "cp1258 windows1258 xcp1258",
    "gb18030": "gb18030 chinese csgb2312 csiso58gb231280 gb2312 gb231280 gbk isoir58 xgbk cp936 ms936 "
    "windows936 euccn xeuccn gb180302000",
    "hz": "hzgb2312",
    "cp950": "big5 cnbig5 csbig5 xxbig5 big5eten cp950 ms950 windows950 xwindows950",
    "big5hkscs": "big5hkscs cp951",
    "euc_jp": "cseucpkdfmtjapanese eucjp xeucjp ujis windows51932 cp51932",
    "iso2022_jp_2": "csiso2022jp iso2022jp windows50221",
    "iso2022_kr": "csiso2022kr iso2022kr",
    "cp932": "csshiftjis ms932 mskanji shiftjis sjis windows31j xsjis windows932 cp932 cswindows31j",
    "cp949": "cseuckr csksc56011987 euckr isoir149 korean ksc56011987 ksc56011989 ksc5601 windows949 cp949 "
    "ms949 xwindows949 uhc",
    "johab": "johab xjohab ms1361 cp1361 ksc56011992",
}
"""Codecs of Python with the labels that stand for them: those of the WHATWG standard, and more from Windows.

Labels are written without dashes, dots and the like. As in browsers, a label means the larger set that holds
its own: Latin-1 is Windows-1252, and GB2312 is GB18030.
"""
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}

_NOT_OF_FILES = frozenset("idna punycode raw_unicode_escape undefined unicode_escape utf_7".split())
"""Codecs of Python that are not encodings of files. Decoding punycode takes quadratic time."""

_DECLARATION = rb"(?i)<(?:meta\b|\?xml\b)([^>]*)"
_CHARSET = rb"""(?i)(?:charset|encoding)\s*+=\s*+["']?\s*+([\w:.-]+)"""
_CODING = (
    rb"""\bcoding\s{0,3}[=:]\s{0,3}([\w.-]+)"""  # Emacs and Python, in a comment
    rb"""|\b(?:fileencoding|fenc)=([\w.-]+)"""  # Vim
)
_HEADER = (
    rb"""\A@charset\s{1,3}["']([\w.-]+)["'];"""  # a style sheet
    rb"""|\bcharset=([\w:.-]+)\\n"""  # a catalog of messages
    rb"""|\\(?:usepackage\[([\w.-]+)\]\{inputenc\}|inputencoding\{([\w.-]+)\})"""  # LaTeX
)
_MARKUP_BYTES, _HEADER_BYTES = 4096, 8192
_CODING_LINES = 5
"""First and last lines of a text in which editors look for a declaration."""


def codec_of(label: str) -> str | None:
    """Name of the Python codec for a label in a file; None if the label is not known.

    UTF-16 and UTF-32 are not among the answers: a label that was itself read byte by byte cannot be right.
    """
    found = _CODECS.get(re.sub(r"[^a-z0-9]", "", label.lower()))
    if found is not None:
        return found
    try:
        name = codecs.lookup(label.strip()).name
    except (LookupError, ValueError):
        return None
    if name.replace("-", "_") in _NOT_OF_FILES or name.startswith(("utf-16", "utf-32")):
        return None
    return name


def markup_label(data: bytes) -> str | None:
    """Label in the XML declaration, or in a ``meta`` element of HTML."""
    charsets = (re.search(_CHARSET, found) for found in re.findall(_DECLARATION, data[:_MARKUP_BYTES]))
    return next((found[1].decode("ascii") for found in charsets if found), None)


def text_label(data: bytes) -> str | None:
    """Encoding declared by a plain text: for Emacs, Vim or Python, or in the header of the format."""
    head, tail = data[:_HEADER_BYTES], data[-_HEADER_BYTES:]
    lines = head.splitlines()[:_CODING_LINES] + tail.splitlines()[-_CODING_LINES:]
    found = re.search(_CODING, b"\n".join(lines)) or re.search(_HEADER, head)
    return next(label for label in found.groups() if label).decode("ascii") if found else None


SNIFFED = 8192
"""Bytes from the start that decide between binary and text."""

_LONGEST_LINE = 1024 * 1024
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
_MARK_BYTES = tuple(mark for mark, _ in _MARKS)

# Without ESC, SO and SI: the ISO 2022 encodings use them.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b\x0e\x0f")) + b"\x7f"
_ESCAPES = ((b"\x1b$)C", "iso2022_kr"), (b"\x1b$", "iso2022_jp_2"), (b"\x1b(J", "iso2022_jp_2"))
_HIGH = bytes(range(0x80, 0x100))

_PREFERRED = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "cp950",
    "big5hkscs": "cp950",
    "shift_jis": "cp932",
    "shift_jis_2004": "cp932",
    "euc_jis_2004": "euc_jp",
}
"""Encodings more common than their relatives, which share all letters. They are tried first."""
_UNLIKELY = ("cp1006", "hp-roman8")
"""Encodings that the detector takes ISO 8859-2 for, and that files hardly ever have."""
_WIDER = {"cp950": "big5hkscs", "cp932": "shift_jis_2004", "euc_jp": "euc_jis_2004"}
"""Relatives with more characters, tried if a text does not fit."""


class Decoded(msgspec.Struct, frozen=True):
    text: str
    encoding: str
    guessed: bool
    """Nothing in the bytes names the encoding; this is the most likely one."""
    replaced: int
    """Characters that could not be decoded and became U+FFFD."""


def decode(data: bytes, declared: str | Callable[[bytes], str | None] | None = None) -> Decoded:
    """Decode by byte order mark, strict UTF-8, the declared label, or the most likely legacy encoding.

    ``declared`` may be a function that finds the label; it is called only if needed. Raises UnsupportedType
    if the bytes are not text.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decoded(data, encoding)
    if looks_binary(data):
        raise UnsupportedType("the content is binary, not text")
    encoding_found = wide_encoding(data[:SNIFFED]) or _escaped_encoding(data)
    if encoding_found is not None:
        return _decoded(data, encoding_found)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _legacy(data, _codec(data, declared))
    # HZ is seven-bit as well. The search for one byte is much faster than for two.
    maybe_hz = declared is not None and b"~" in data[:SNIFFED] and b"~{" in data
    if maybe_hz and _codec(data, declared) == "hz" and _fits(data, "hz"):
        return _decoded(data, "hz")
    return Decoded(text, "utf-8", False, 0)


def clean(text: str) -> str:
    """Normalise text: ``\\n`` line ends, NFC, and no NUL or lone surrogate, which stores refuse."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = normalized("NFC", text.removeprefix("\ufeff"))
    if "\x00" in text or not text.isascii():
        text = re.sub("[\ud800-\udfff]", "\ufffd", text.replace("\x00", ""))
    return text


def looks_binary(head: bytes) -> bool:
    """Detect binary data: NULs outside UTF-16 and UTF-32, or more than a few control characters."""
    head = head[:SNIFFED]
    if not head or head.startswith(_MARK_BYTES):
        return False
    if b"\x00" in head:
        return wide_encoding(head) is None
    control = len(head) - len(head.translate(None, _CONTROL))
    return control > len(head) // 20


def whole_lines(data: bytes, *, quoted: bool = False) -> bytes:
    """The beginning of a file without the possibly incomplete last line. A very long line is kept.

    ``quoted``: line feeds between quotes end no row of a table.
    """
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
    if wide or wide_encoding(data[:SNIFFED]) is not None:
        # Bytes of a line feed may be parts of other characters. This is a multiple of every width.
        return data[: len(data) - len(data) % 4]
    earliest = max(0, len(data) - _LONGEST_LINE)
    is_open = quoted and data.count(b'"') % 2 == 1
    end = len(data)
    place = data.rfind(b"\n", earliest)
    while place >= 0:
        is_open ^= quoted and data.count(b'"', place, end) % 2 == 1
        if not is_open:
            return data[: place + 1]
        end = place
        place = data.rfind(b"\n", earliest, end)
    return data


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


def _codec(data: bytes, declared: str | Callable[[bytes], str | None] | None) -> str | None:
    label = declared(data) if callable(declared) else declared
    return codec_of(label) if label is not None else None


def _escaped_encoding(data: bytes) -> str | None:
    """Detect the seven-bit encodings of East Asia by their escape sequences; they are valid UTF-8 as well."""
    if b"\x1b" not in data[:SAMPLED]:
        return None
    for escape, encoding in _ESCAPES:
        if escape in data[:SAMPLED]:
            return encoding if _fits(data, encoding) else None
    return None


def _fits(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def _decoded(data: bytes, encoding: str, *, guessed: bool = False) -> Decoded:
    try:
        return Decoded(data.decode(encoding), encoding, guessed, 0)
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
        return Decoded(text, encoding, guessed, text.count("\ufffd"))


def _legacy(data: bytes, declared: str | None) -> Decoded:
    """Decode bytes with invalid UTF-8."""
    for codec in filter(None, (declared, _WIDER.get(declared or ""))):
        with suppress(UnicodeDecodeError, LookupError):
            return Decoded(data.decode(codec), codec, False, 0)
    for codec in filter(None, ("utf-8", declared)):
        # A few bytes are wrong, or the end is cut off. Another encoding would garble all of the text.
        with suppress(LookupError):
            found = _decoded(data, codec)
            if _foreign(found.text) > 10 * found.replaced:
                return found
    if len(data) - len(data.translate(None, _HIGH)) < _TOO_FEW:
        return _decoded(data, "cp1252", guessed=True)
    return _decoded(data, _likely(data), guessed=True)


def _foreign(text: str) -> int:
    return len(text) - len(text.encode("ascii", "ignore"))


def _likely(data: bytes) -> str:
    """The most likely encoding, by the letters around the first ones outside ASCII."""
    import chardet

    best = chardet.detect(
        _sample(data),
        encoding_era=chardet.EncodingEra.ALL,
        max_bytes=SAMPLED,
        prefer_superset=False,
        compat_names=False,
        exclude_encodings=_UNLIKELY,
    )["encoding"]
    known = codec_of(best) if best is not None else None
    if best is None or known is None:
        return "cp1252"
    return next((name for name in (_PREFERRED.get(best, best), best) if _fits(data, name)), known)


def _sample(data: bytes) -> bytes:
    """Lines from the start, or from a first non-ASCII character further on."""
    found = re.search(rb"[\x80-\xff]", data)
    start = data.rfind(b"\n", 0, found.start()) + 1 if found is not None else 0
    if start < SAMPLED // 2:
        start = 0
    end = start + SAMPLED
    if end < len(data):
        # Not in the middle of a character.
        end = data.rfind(b"\n", start, end) + 1 or end
    return data[start:end]
