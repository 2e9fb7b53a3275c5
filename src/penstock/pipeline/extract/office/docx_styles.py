"""Styles and numbering of a Word document: which paragraphs are headings, list items or code."""

from __future__ import annotations

import re
from collections import defaultdict

from penstock.named_tuple import NamedTuple
from penstock.pipeline.extract.office.xml_events import Attributes

_HEADING = re.compile(
    r"(?:heading|ü?berschrift|titre|titolo|t[íi]?tulo|kop|rubrik|overskrift|otsikko|nag[łl]?[óo]?wek|nadpis|"
    r"c[íi]msor|ba[şs]l[ıi]k|заголовок|επικεφαλ[ίι]δα|标题|標題|見出し|제목)\s*([1-9])",
    re.I,
)
"""Names of heading styles, in the languages of programs that translate them."""
_TITLE = frozenset(["title", "titel", "titulo", "título", "titolo", "titre", "название"])
_CODE = frozenset(
    [
        *["code", "code block", "codeblock", "code listing", "source code", "sourcecode", "program listing"],
        *["listing", "verbatim", "macro text", "html preformatted", "htmlpreformatted", "preformatted text"],
    ]
)
_BODY = 9
"""Outline level of text that is not a heading."""


class Style(NamedTuple):
    """Format of a paragraph style. None: the base style decides."""

    level: int | None = None
    """Level of a heading from 1; 0 for other text."""
    number_id: str | None = None
    list_level: int | None = None
    code: bool | None = None
    title: bool = False

    def over(self, base: Style) -> Style:
        return Style(
            base.level if self.level is None else self.level,
            base.number_id if self.number_id is None else self.number_id,
            base.list_level if self.list_level is None else self.list_level,
            base.code if self.code is None else self.code,
            self.title,
        )


class Styles:
    """Paragraph styles by id. Handler of the part ``styles.xml``."""

    elements_read = frozenset("w:style w:name w:basedOn w:outlineLvl w:numId w:ilvl".split())

    def __init__(self) -> None:
        self._own: dict[str, Style] = {}
        self._bases: dict[str, str] = {}
        self._resolved: dict[str, Style] = {}
        self._id = ""
        self.default = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "w:style":
            self._start_style(attributes)
        elif self._id and name in self.elements_read:
            self._note(name, attributes.get("w:val", ""))

    def _start_style(self, attributes: Attributes) -> None:
        self._id = attributes.get("w:styleId", "") if attributes.get("w:type") == "paragraph" else ""
        if self._id:
            self._own[self._id] = Style()
            if attributes.get("w:default") in ("1", "true", "on"):
                self.default = self._id

    def _note(self, name: str, value: str) -> None:
        if name == "w:name":
            self._change(**_by_name(value))
        elif name == "w:basedOn":
            self._bases[self._id] = value
        elif name == "w:outlineLvl" and self._own[self._id].level is None:
            self._change(level=outline_level(value))
        elif name == "w:numId":
            self._change(number_id=value)
        elif name == "w:ilvl":
            self._change(list_level=small_number(value))

    def end(self, name: str) -> None:
        if name == "w:style":
            self._id = ""

    def text(self, data: str) -> None: ...

    def _change(self, **facts: object) -> None:
        self._own[self._id] = self._own[self._id]._replace(**facts)  # type: ignore[arg-type]

    def get(self, style_id: str) -> Style:
        """Format by a style and the base styles. Each is looked up once, however long the chain."""
        if style_id not in self._own:
            return Style(**_by_name(style_id))  # type: ignore[arg-type]
        chain: list[str] = []
        at = style_id
        while at in self._own and at not in self._resolved:
            self._resolved[at] = self._own[at]
            chain.append(at)
            at = self._bases.get(at, "")
        base = self._resolved.get(at, Style())
        for one in reversed(chain):
            base = self._resolved[one] = self._own[one].over(base)
        return self._resolved.get(style_id, Style())


def heading_by_name(name: str) -> int:
    """Heading level of a style, by name; 0 for other names."""
    heading = _HEADING.fullmatch(name.strip())
    return int(heading[1]) if heading else 0


def _by_name(name: str) -> dict[str, object]:
    level = heading_by_name(name)
    if level:
        return {"level": level}
    if name.lower() in _TITLE:
        return {"level": 1, "title": True}
    if name.lower() == "subtitle":
        return {"level": 2}
    return {"code": True} if name.lower() in _CODE else {}


def outline_level(value: str) -> int | None:
    """Level of a heading from the outline level of a paragraph, where 9 is body text."""
    level = small_number(value)
    return None if level is None else (0 if level >= _BODY else level + 1)


def small_number(value: str) -> int | None:
    return int(value) if re.fullmatch(r"[0-9]{1,4}", value) else None


class _Level(NamedTuple):
    bullet: bool = False
    hidden: bool = False
    start: int = 1


class Numbering:
    """Lists by id, with the numbers of their items. Handler of the part ``numbering.xml``."""

    def __init__(self) -> None:
        self._levels: dict[str, dict[int, _Level]] = defaultdict(dict)
        """Levels of each abstract list, and of each list that overrides some."""
        self._abstract: dict[str, str] = {}
        self._counts: dict[str, list[int]] = {}
        self._owner = ""
        self._level = 0

    def start(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("w:val", "")
        if name == "w:abstractNum":
            self._owner = "abstract " + attributes.get("w:abstractNumId", "")
        elif name == "w:num":
            self._owner = attributes.get("w:numId", "")
        elif name == "w:abstractNumId":
            self._abstract[self._owner] = "abstract " + value
        elif name in ("w:lvl", "w:lvlOverride"):
            self._level = small_number(attributes.get("w:ilvl", "")) or 0
        elif name == "w:numFmt":
            self._change(bullet=value == "bullet", hidden=value == "none")
        elif name in ("w:start", "w:startOverride"):
            self._change(start=small_number(value) or 0)

    def end(self, name: str) -> None: ...

    def text(self, data: str) -> None: ...

    def _change(self, **facts: object) -> None:
        base = self._levels.get(self._abstract.get(self._owner, ""), {})
        levels = self._levels[self._owner]
        known = levels.get(self._level) or base.get(self._level) or _Level()
        levels[self._level] = known._replace(**facts)  # type: ignore[arg-type]

    def marker(self, number_id: str, level: int) -> str:
        """Marker of the next item of a list; empty for a list without markers."""
        if number_id in ("", "0"):
            return ""
        if number_id not in self._abstract:
            return "-"
        level = min(level, _BODY - 1)
        about = self._about(number_id, level)
        if about.hidden:
            return ""
        # Lists of one definition are counted together, as Word does, unless one begins again.
        key = number_id if number_id in self._levels else self._abstract.get(number_id, number_id)
        counts = self._counts.setdefault(key, [])
        del counts[level + 1 :]
        while len(counts) <= level:
            counts.append(self._about(number_id, len(counts)).start - 1)
        counts[level] += 1
        return "-" if about.bullet else f"{counts[level]}."

    def _about(self, number_id: str, level: int) -> _Level:
        own = self._levels.get(number_id, {}).get(level)
        return own or self._levels.get(self._abstract.get(number_id, ""), {}).get(level) or _Level()
