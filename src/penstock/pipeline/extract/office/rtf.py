"""RTF documents as Markdown: headings, lists, tables, notes and comments."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract.office.docx import heading_by_name
from penstock.pipeline.extract.office.markdown_page import END_OF_TABLE, Block, MarkdownPage
from penstock.pipeline.extract.office.package import no_text
from penstock.pipeline.extract.protocol import (
    Content,
    ExtractedText,
    ExtractLimits,
    FileType,
    Properties,
    Shape,
)
from penstock.pipeline.extract.text import one_line, stated_title

_LEFT_OUT = frozenset(
    "aftncn aftnsep aftnsepc atnid atndate atnref atntime background bkmkend bkmkstart category "
    "colorschememapping colortbl comment company datafield datastore doccomm falt fldinst file filetbl "
    "fname fontemb formfield ftncn ftnsep ftnsepc generator hlinkbase keycode keywords latentstyles "
    "levelnumbers leveltext list listlevel listname listoverride listoverridetable listpicture listtable "
    "mailmerge manager mmathPr objalias objclass objdata objname operator panose pgptbl pict pntxta "
    "pntxtb printim private propname protusertbl revtbl rsidtbl rxe shprslt sn sp staticval subject sv tc "
    "template themedata txe upr userprops xe xmlnstbl buptim shpinst dptxbxtext objocx nonshppict".split()
)
"""Groups without text of the document, also without a star before them."""

_KEPT = frozenset(
    "annotation atnauthor author creatim fonttbl footer footerf footerl footerr footnote header headerf "
    "headerl headerr listtext nonesttables pntext revtim shptxt stylesheet title".split()
)
"""Groups whose text goes elsewhere than into the paragraph around them."""

_SIGNS: Mapping[str, str] = MappingProxyType(
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

_CHARSETS: Mapping[int, str] = MappingProxyType(
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


def _code_page(number: int | None) -> str:
    """Python's name of a Windows code page; empty for an unknown one."""
    if number is None:
        return ""
    name = _NAMES.get(number, f"cp{number}")
    try:
        return codecs.lookup(name).name
    except LookupError:
        return ""


_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?[0-9]{1,9})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)|.",
    re.DOTALL,
)
_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 10_000
_TIMES = ("yr", "mo", "dy", "hr", "min", "sec")


class _Target:
    """A place where text goes: the body, a note, a header, or a field of the properties."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[str] = []

    def take(self) -> str:
        text = "".join(self.parts)
        self.parts.clear()
        if _SURROGATES.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text


class _State:
    """Properties inherited by a group, and restored at the end of the group."""

    __slots__ = ("deleted", "encoding", "in_table", "level", "list_level", "skipped", "star", "target")

    def __init__(self, target: _Target | None) -> None:
        self.target = target
        """None: text of this group is left out."""
        self.encoding = ""
        """Encoding of the font; empty: the encoding of the document."""
        self.skipped = 1
        self.level = 0
        self.list_level = 0
        self.in_table = False
        self.deleted = False
        self.star = False

    def copy(self) -> _State:
        made = _State(self.target)
        made.encoding, made.skipped = self.encoding, self.skipped
        made.level, made.list_level = self.level, self.list_level
        made.in_table, made.deleted = self.in_table, self.deleted
        return made


class RtfReader:
    """RTF in one pass, without recursion. Blocks of a document go to ``sink``. Notes, headers and shapes
    follow the paragraph they stand in."""

    def __init__(self, sink: Callable[[Block], None]) -> None:
        self._sink = sink
        self._body = _Target("body")
        self._state = _State(self._body)
        self._stack: list[_State] = []
        self._bytes = bytearray()
        """Bytes of the text whose encoding is that of the current state."""
        self._encoding = "cp1252"
        self._to_skip = 0
        self._fonts: dict[int, str] = {}
        self._font = 0
        self._styles: dict[int, int] = {}
        self._style = -1
        self._cells: list[str] = []
        self._after: list[Block] = []
        self._marker = ""
        self._notes = 0
        self._author = ""
        self._seen: set[tuple[str, str]] = set()
        self._paragraphs = 1
        self._time = ""
        self.info: dict[str, str] = {}
        self.times: dict[str, dict[str, int]] = {}
        self.first_heading = ""
        self.cut = False
        self.has_pictures = False

    def read(self, data: bytes) -> None:
        place = max(0, data.find(b"{\\rtf"))
        begun = False
        while (token := _TOKEN.match(data, place)) is not None:
            place = token.end()
            word, number, code, sign, brace, text = token.groups()
            if text is not None:
                self._add_bytes(text)
            elif word is not None:
                value = int(number) if number is not None else None
                if word == b"bin" and value:
                    place += max(0, value)
                self._word(word.decode("ascii"), value)
            elif code is not None:
                self._add_bytes(bytes([int(code, 16)]))
            elif brace == b"{":
                self._start_group()
                begun = True
            elif brace == b"}":
                self._end_group()
                if begun and not self._stack:
                    break
            elif sign is not None:
                self._sign(sign)
        self.cut = bool(self._stack)
        self._flush()
        self._end_row()
        self._end_paragraph()

    def _start_group(self) -> None:
        if len(self._stack) >= _MAX_DEPTH:
            raise DocumentDamaged(f"the document has more than {_MAX_DEPTH:,} groups inside each other")
        self._flush()
        self._stack.append(self._state)
        self._state = self._state.copy()

    def _add_bytes(self, text: bytes) -> None:
        if self._to_skip:
            skipped = min(self._to_skip, len(text))
            self._to_skip -= skipped
            text = text[skipped:]
        if self._state.target is not None and not self._state.deleted:
            self._bytes += text

    def _add_text(self, text: str) -> None:
        self._flush()
        target = self._state.target
        if target is not None and not self._state.deleted:
            target.parts.append(text)

    def _flush(self) -> None:
        self._to_skip = 0
        if self._bytes:
            text = self._bytes.decode(self._state.encoding or self._encoding, "replace")
            self._bytes.clear()
            if self._state.target is not None:
                self._state.target.parts.append(text)

    def _sign(self, sign: bytes) -> None:
        if sign == b"*":
            self._state.star = True
        elif sign in b"\r\n":
            self._word("par", None)
        elif sign in b"{}\\":
            self._add_bytes(sign)
        elif sign == b"~":
            self._add_text("\u00a0")
        elif sign == b"_":
            self._add_text("-")

    def _word(self, word: str, value: int | None) -> None:
        state = self._state
        self.has_pictures = self.has_pictures or word == "pict"
        if word in _LEFT_OUT or (state.star and word not in _KEPT):
            self._flush()
            state.target = None
        elif word in _KEPT:
            self._start_target(word)
        elif word == "u":
            self._add_text(chr(value % 0x10000) if value is not None else "")
            self._to_skip = state.skipped
        elif word in _SIGNS:
            self._add_text(_SIGNS[word])
        elif word in ("par", "sect", "page", "cell", "row", "nestcell", "nestrow"):
            self._break(word)
        elif state.target is not None and state.target.kind == "fonttbl":
            self._font_word(word, value)
        else:
            self._flush()
            self._property(word, value)
        state.star = False

    def _start_target(self, word: str) -> None:
        self._flush()
        state = self._state
        if word == "nonesttables":
            state.target = None
        elif word in ("creatim", "revtim"):
            self._time = word
            state.target = None
        elif state.target is not None or word == "shptxt":
            state.target = _Target(word)
            state.level, state.in_table = 0, False

    def _font_word(self, word: str, value: int | None) -> None:
        if word == "f":
            self._font = value or 0
        elif word == "fcharset" and value is not None and value in _CHARSETS:
            self._fonts[self._font] = _CHARSETS[value]
        elif word == "cpg" and _code_page(value):
            self._fonts[self._font] = _code_page(value)

    def _property(self, word: str, value: int | None) -> None:
        state = self._state
        if word == "pard":
            state.level, state.list_level, state.in_table = 0, 0, False
        elif word == "plain":
            state.encoding, state.deleted = "", False
        elif word == "f":
            state.encoding = self._fonts.get(value or 0, "")
        elif word in ("s", "outlinelevel"):
            self._style_property(word, value or 0)
        elif word == "ilvl":
            state.list_level = max(0, min(value or 0, 8))
        elif word == "intbl":
            state.in_table = True
        elif word == "deleted":
            state.deleted = value != 0
        elif word == "uc":
            state.skipped = max(0, min(1 if value is None else value, 99))
        else:
            self._document_property(word, value)

    def _style_property(self, word: str, value: int) -> None:
        if word == "s":
            self._style = value
            self._state.level = self._styles.get(value, 0)
            return
        self._state.level = value + 1 if 0 <= value < 9 else 0
        if self._state.target is not None and self._state.target.kind == "stylesheet":
            self._styles[self._style] = self._state.level

    def _document_property(self, word: str, value: int | None) -> None:
        if word == "ansicpg":
            self._encoding = _code_page(value) or self._encoding
        elif word in ("mac", "pc", "pca"):
            self._encoding = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}[word]
        elif word in _TIMES and self._time:
            self.times.setdefault(self._time, {})[word] = value or 0

    def _break(self, word: str) -> None:
        self._flush()
        target = self._state.target
        if target is None or self._state.deleted:
            return
        if target is not self._body or word in ("nestcell", "nestrow"):
            target.parts.append(" ")
        elif word == "cell":
            self._cells.append(target.take())
            self._paragraphs += 1
        elif word == "row":
            self._end_row()
        elif self._state.in_table:
            target.parts.append("\n")
            self._paragraphs += 1
        else:
            if self._cells:
                self._end_row()
            self._end_paragraph()

    def _end_row(self) -> None:
        cells, self._cells = self._cells, []
        if cells:
            self._sink(Block("", self._paragraphs, cells=tuple(cells)))
            self._follow()

    def _end_paragraph(self) -> None:
        text = self._body.take()
        marker, self._marker = self._marker, ""
        level = self._state.level if text.strip() else 0
        if level == 1 and not self.first_heading:
            self.first_heading = text
        self._sink(END_OF_TABLE)
        if level:
            self._sink(Block(text, self._paragraphs, level=level))
        else:
            self._sink(Block(text, self._paragraphs, marker=marker, depth=self._state.list_level))
        self._follow()
        self._paragraphs += 1

    def _follow(self) -> None:
        after, self._after = self._after, []
        for block in after:
            self._sink(replace(block, position=self._paragraphs))

    def _end_group(self) -> None:
        self._flush()
        ended = self._state
        if not self._stack:
            return
        self._state = self._stack.pop()
        target = ended.target
        if target is not None and target.kind == "stylesheet":
            # A group for each style, which ends with its name.
            level = heading_by_name(target.take().rstrip("; "))
            if level:
                self._styles.setdefault(self._style, level)
        elif target is not None and target is not self._state.target:
            self._end_target(target)

    def _end_target(self, target: _Target) -> None:
        text = target.take()
        kind = target.kind
        if kind in ("title", "author"):
            self.info.setdefault(kind, text)
        elif not text.strip() or kind == "fonttbl":
            return
        elif kind == "footnote":
            self._notes += 1
            if self._state.target is not None:
                self._state.target.parts.append(f"[^{self._notes}]")
            self._after.append(Block(f"[^{self._notes}]: {text}"))
        elif kind == "annotation":
            self._after.append(Block(f"{self._author}: {text}" if self._author else text, quoted=True))
        elif kind == "atnauthor":
            self._author = text.strip()
        elif kind in ("listtext", "pntext"):
            digits = re.match(r"\s*([0-9]{1,6})[.)]", text)
            self._marker = f"{digits[1]}." if digits else "-"
        elif (kind[:6], text) not in self._seen:
            # Sections repeat their headers and footers.
            self._seen.add((kind[:6], text))
            self._after.append(Block(text))


class RtfExtractor:
    """One page with paragraph positions."""

    name = "rtf"
    version = "1"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        if not content.data.lstrip().startswith(b"{\\rtf"):
            raise DocumentDamaged("this is not an RTF document, in spite of its name")
        page = MarkdownPage(limits)
        reader = RtfReader(page.add)
        reader.read(content.data)
        written = page.page(positions=True)
        if not written.text and reader.has_pictures:
            raise no_text()
        return ExtractedText(
            pages=(written,),
            file_type=file_type,
            shape=Shape.MARKDOWN,
            page_count=1,
            title=stated_title(reader.info.get("title", "") or reader.first_heading),
            warnings=("the file ends in the middle of the text",) if reader.cut else (),
            properties=Properties(
                author=one_line(reader.info.get("author", "")),
                created=_date(reader.times.get("creatim", {})),
                modified=_date(reader.times.get("revtim", {})),
            ),
        )


def _date(parts: dict[str, int]) -> str:
    year, month, day, hour, minute, second = (parts.get(name, 0) for name in _TIMES)
    if not (1970 <= year < 10_000 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        return ""
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second % 60:02}"
