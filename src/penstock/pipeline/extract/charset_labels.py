"""Names of character sets in files: labels of the web and of Windows, and where a text declares its own."""

from __future__ import annotations

import codecs
import re

from penstock.lazy_pattern import lazy_pattern

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

_PUNCTUATION = lazy_pattern(r"[^a-z0-9]")
_DECLARATION = lazy_pattern(rb"<(?:meta\b|\?xml\b)([^>]*)", re.I)
_CHARSET = lazy_pattern(rb"""(?:charset|encoding)\s*+=\s*+["']?\s*+([\w:.-]+)""", re.I)
_CODING = lazy_pattern(
    rb"""\bcoding\s{0,3}[=:]\s{0,3}([\w.-]+)"""  # Emacs and Python, in a comment
    rb"""|\b(?:fileencoding|fenc)=([\w.-]+)"""  # Vim
)
_HEADER = lazy_pattern(
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
    found = _CODECS.get(_PUNCTUATION.sub("", label.lower()))
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
    charsets = (_CHARSET.search(found[1]) for found in _DECLARATION.finditer(data[:_MARKUP_BYTES]))
    return next((found[1].decode("ascii") for found in charsets if found), None)


def text_label(data: bytes) -> str | None:
    """Encoding declared by a plain text: for Emacs, Vim or Python, or in the header of the format."""
    head, tail = data[:_HEADER_BYTES], data[-_HEADER_BYTES:]
    lines = head.splitlines()[:_CODING_LINES] + tail.splitlines()[-_CODING_LINES:]
    found = _CODING.search(b"\n".join(lines)) or _HEADER.search(head)
    return next(label for label in found.groups() if label).decode("ascii") if found else None
