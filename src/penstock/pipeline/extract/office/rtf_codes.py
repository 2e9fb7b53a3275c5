"""Control words and character sets of RTF."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from types import MappingProxyType

LEFT_OUT = frozenset(
    "aftncn aftnsep aftnsepc atnid atndate atnref atntime background bkmkend bkmkstart category "
    "colorschememapping colortbl comment company datafield datastore doccomm falt fldinst file filetbl "
    "fname fontemb formfield ftncn ftnsep ftnsepc generator hlinkbase keycode keywords latentstyles "
    "levelnumbers leveltext list listlevel listname listoverride listoverridetable listpicture listtable "
    "mailmerge manager mmathPr objalias objclass objdata objname operator panose pgptbl pict pntxta "
    "pntxtb printim private propname protusertbl revtbl rsidtbl rxe shprslt sn sp staticval subject sv tc "
    "template themedata txe upr userprops xe xmlnstbl buptim shpinst dptxbxtext objocx nonshppict".split()
)
"""Groups without text of the document, also without a star before them."""

KEPT = frozenset(
    "annotation atnauthor author creatim fonttbl footer footerf footerl footerr footnote header headerf "
    "headerl headerr listtext nonesttables pntext revtim shptxt stylesheet title".split()
)
"""Groups whose text goes elsewhere than into the paragraph around them."""

SIGNS: Mapping[str, str] = MappingProxyType(
    {
        "line": "\n",
        "tab": "\t",
        "emdash": "\u2014",
        "endash": "\u2013",
        "emspace": " ",
        "enspace": " ",
        "qmspace": " ",
        "bullet": "\u2022",
        "lquote": "\u2018",
        "rquote": "\u2019",
        "ldblquote": "\u201c",
        "rdblquote": "\u201d",
    }
)

CHARSETS: Mapping[int, str] = MappingProxyType(
    {
        0: "cp1252",
        77: "mac_roman",
        78: "shift_jis",
        79: "gb2312",
        80: "johab",
        81: "big5",
        83: "mac_greek",
        84: "mac_cyrillic",
        85: "mac_greek",
        128: "cp932",
        129: "cp949",
        130: "johab",
        134: "gbk",
        136: "cp950",
        161: "cp1253",
        162: "cp1254",
        163: "cp1258",
        177: "cp1255",
        178: "cp1256",
        186: "cp1257",
        204: "cp1251",
        222: "cp874",
        238: "cp1250",
        254: "cp437",
        255: "cp850",
    }
)
"""Encodings of fonts by ``\\fcharset``. Others use the encoding of the document."""

_NAMES = {
    936: "gbk",
    1361: "johab",
    10000: "mac_roman",
    10007: "mac_cyrillic",
    65001: "utf-8",
    708: "iso8859_6",
}


def code_page(number: int | None) -> str:
    """Python's name of a Windows code page; empty for an unknown one."""
    if number is None:
        return ""
    name = _NAMES.get(number, f"cp{number}")
    try:
        return codecs.lookup(name).name
    except LookupError:
        return ""
