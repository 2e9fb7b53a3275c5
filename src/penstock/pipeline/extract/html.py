"""HTML as Markdown: headings, lists, code and table rows. Invisible elements are dropped.

Pages whose parsing takes quadratic time are found from their tags alone, and refused.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from penstock.errors import DocumentDamaged
from penstock.pipeline.extract.charset import clean, decode, markup_label
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits, FileType, Shape
from penstock.pipeline.extract.text import fence_around, one_page, with_properties
from penstock.strict_json import normalized

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode


_FEW = 4_000
_SMALL = 512 * 1024
_LONG_TAG = 8_000
"""A page with fewer tags, a shorter text and no longer tag is always cheap."""
_MANY_ATTRIBUTES = 2_000
"""From this length of a tag on, its attributes are counted."""

_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>"'][^\s>]*+)?+)?+"""
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_TAG = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b.*?(?:</\1|\Z)"
    rf"|<(/?[a-z][^\s/>]*+)((?:{_ATTRIBUTE})*+)",
    re.IGNORECASE | re.DOTALL,
)
_LOOKED_BACK = 32
"""Open elements that are searched for the one that an end tag closes."""

_SCOPES = frozenset("applet button marquee object table template".split())
"""Blocks that only their own end tag closes."""
_BLOCKS = _SCOPES | frozenset(
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer "
    "form header hgroup main menu nav ol pre search section select summary ul".split()
)
_CLOSED_BY_OTHERS = frozenset(
    "body caption colgroup dd dt h1 h2 h3 h4 h5 h6 head html li optgroup option p tbody td tfoot th thead "
    "tr".split()
)
"""Blocks with an optional end tag, which hardly nest without other blocks between them."""
_NEVER_OPEN = frozenset("a area base br col embed hr img input link meta nobr param source track wbr".split())

_NESTING = {
    **dict.fromkeys(_BLOCKS, "block"),
    **dict.fromkeys(_CLOSED_BY_OTHERS, "closed by others"),
    **dict.fromkeys(_NEVER_OPEN, "never open"),
    **{f"/{name}": "never open" for name in _CLOSED_BY_OTHERS | _NEVER_OPEN},
}

_FORMATTING = "(?:b|big|code|em|font|i|s|small|strike|strong|tt|u)"
_REPEATED = re.compile(rf"<(?=[bcefistu]){_FORMATTING}(?:[\s/][^<>]*)?>", re.I)
_REPEATED_OR_END = re.compile(rf"</?{_FORMATTING}(?:[\s/](?![^<>]*(?:hidden|display))[^<>]*)?>", re.I)
_MAX_REPEATED = 3
_MANY_TAGS = 1_000
_OPTION = re.compile(r"</?(?:select|optgroup|option)\b", re.I)
_MAX_OPTIONS = 5_000


def _steps_of(markup: str, most: int) -> int:
    """Estimated steps to build the tree; stops counting above ``most``.

    A block tag searches all open elements for a paragraph to end, and an end tag for the element to close.
    Each attribute is compared with all attributes before it. Formatting that is never closed is repeated in
    every block. The estimate follows the open elements roughly; where HTML has finer rules, it is too high.
    """
    if _is_harmless(markup):
        return 0
    steps = 0
    still_open: list[str] = []
    for tag in _TAG.finditer(markup):
        name, attributes = tag.group(2, 3)
        if name is not None:
            steps += _steps(still_open, name if name.islower() else name.lower(), attributes)
        if steps > most:
            break
    return steps


def _is_harmless(markup: str) -> bool:
    if len(markup) >= _SMALL or markup.count("<") >= _FEW:
        return False
    return len(markup) < _LONG_TAG or max(map(len, markup.split(">"))) < _LONG_TAG


def _steps(still_open: list[str], name: str, attributes: str) -> int:
    steps = 0
    if len(attributes) > _MANY_ATTRIBUTES:
        steps = sum(1 for _ in _ATTRIBUTES.finditer(attributes)) ** 2
    nesting = _NESTING.get(name)
    if nesting == "never open":
        return steps
    if name[0] == "/":
        return steps + _ended(still_open, name[1:])
    if nesting:
        steps += len(still_open)
    if nesting != "closed by others":
        still_open.append(name)
    return steps


def _ended(still_open: list[str], name: str) -> int:
    if still_open and still_open[-1] == name:
        still_open.pop()
        return 1
    barriers = _SCOPES if name in _BLOCKS else _BLOCKS
    for back, other in enumerate(islice(reversed(still_open), _LOOKED_BACK), 1):
        if other == name:
            del still_open[-back:]
            return back
        if other in barriers:
            break
    return len(still_open)


def simplified(markup: str) -> str:
    """Remove costly tags without meaning for the text: formatting, and options of select lists."""
    tags = markup.count("<")
    if tags > _MANY_TAGS:
        repeated = _MAX_REPEATED * len(set(_REPEATED.findall(markup)))
        # In the worst case, each is open before every tag and is repeated after it.
        if repeated * tags > 300_000 + len(markup):
            markup = _REPEATED_OR_END.sub("", markup)
    if tags > _MAX_OPTIONS and len(_OPTION.findall(markup)) > _MAX_OPTIONS:
        # Each option would be counted again at the next one. An ``hr`` separates the texts as well.
        markup = _OPTION.sub("<hr", markup)
    return markup


_INVISIBLE = (
    "script, style, template, noscript, iframe, object, canvas, audio, video, svg, datalist, "
    '[hidden], [style*="display:none"], [style*="display: none"]'
)
_TEXT_BLOCKS = frozenset(
    "h1 h2 h3 h4 h5 h6 address article aside blockquote body caption center dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form header hgroup hr html legend li main menu nav ol option p pre "
    "section select summary table tbody tfoot thead tr ul".split()
)
_BREAK = "\x00"
"""Marks a ``br``. No text contains it, since ``clean`` removes it."""
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = frozenset(["ul", "ol", "menu", "dir"])
_META = {
    "author": "author",
    "dc.creator": "author",
    "dcterms.creator": "author",
    "article:published_time": "created",
    "datepublished": "created",
    "date": "created",
    "dc.date": "created",
    "dcterms.created": "created",
    "article:modified_time": "modified",
    "datemodified": "modified",
    "last-modified": "modified",
    "dcterms.modified": "modified",
}
_MAX_META = 200
_FREE_STEPS = 5_000_000
_STEPS_PER_CHARACTER = 64
"""Steps allowed for building the tree. More is an attack."""
_MAX_LIST_INDENT = 20
"""Nested lists that are indented. Deeper ones would begin each line with too many spaces."""


class HtmlExtractor:
    name = "html"
    version = "2"

    def extract(
        self, content: Content, file_type: FileType, limits: ExtractLimits, pages: range | None = None
    ) -> ExtractedText:
        from selectolax.lexbor import LexborHTMLParser, SelectolaxError

        decoded = decode(content.data, markup_label)
        markup = simplified(clean(decoded.text))
        check_cost(markup)
        try:
            tree = LexborHTMLParser(markup)
        except SelectolaxError as error:
            raise DocumentDamaged(f"the HTML cannot be parsed: {error}") from error
        title = _title(tree)
        stated = _stated(tree) if "<meta" in markup or "lang=" in markup else {}
        for node in tree.css(_INVISIBLE):
            node.decompose()
        text, paragraphs = _text(tree)
        extracted = one_page(
            text,
            file_type,
            limits,
            shape=Shape.MARKDOWN,
            title=title,
            line_numbers=paragraphs,
            decoded=decoded,
        )
        return with_properties(extracted, **stated) if stated else extracted


def check_cost(markup: str) -> None:
    """Raise ``DocumentDamaged`` for a page too expensive to parse."""
    most = _FREE_STEPS + _STEPS_PER_CHARACTER * len(markup)
    if _steps_of(markup, most) > most:
        raise DocumentDamaged(
            f"the HTML takes more than {most:,} steps to read: it is nested too deeply, or a tag has too "
            "many attributes"
        )


def _title(tree: LexborHTMLParser) -> str | None:
    for selector in ("head > title", "h1"):
        node = tree.css_first(selector)
        text = " ".join(node.text().split()) if node is not None else ""
        if text:
            return text
    return None


def _stated(tree: LexborHTMLParser) -> dict[str, str]:
    """Author, dates and language, as far as the page states them."""
    stated: dict[str, str] = {}
    if tree.root is not None:
        stated["language"] = tree.root.attributes.get("lang") or ""
    # The whole page would take as long as reading it.
    for node in tree.head.css("meta[content]")[:_MAX_META] if tree.head is not None else ():
        attributes = node.attributes
        name = attributes.get("name") or attributes.get("property") or attributes.get("itemprop") or ""
        meaning = _META.get(name.lower())
        if meaning is not None:
            stated.setdefault(meaning, " ".join((attributes["content"] or "").split()))
    return stated


def _text(tree: LexborHTMLParser) -> tuple[str, tuple[int, ...]]:
    """The text, and the paragraph number of each line: one paragraph for each block of the page."""
    body = tree.body or tree.root
    if body is None:
        return "", ()
    writer = _Writer(plain_pre=_is_one_pre(body), layout_tables=_layout_tables(body))
    _walk(body, writer)
    return writer.text()


def _is_one_pre(body: LexborNode) -> bool:
    """Check whether the page is a text file wrapped in one ``pre``, with paragraphs of prose, not code."""
    children = list(body.iter(include_text=False))
    return len(children) == 1 and children[0].tag == "pre" and children[0].css_first("code, span") is None


def _layout_tables(body: LexborNode) -> frozenset[int]:
    """Tables around other tables: they arrange the page, and their cells are not data."""
    found: set[int] = set()
    passed: set[int] = set()
    for table in body.css("table table"):
        node = table.parent
        while node is not None and node.mem_id not in passed:
            passed.add(node.mem_id)
            if node.tag == "table":
                found.add(node.mem_id)
                break
            node = node.parent
    return frozenset(found)


def _walk(body: LexborNode, writer: _Writer) -> None:
    """Walk the tree without recursion: a page may nest to any depth."""
    depth = 0
    node: LexborNode | None = body
    while node is not None:
        tag = node.tag or ""
        if tag == "-text":
            writer.add(node.text_content or "")
        elif tag != "-comment":
            writer.enter(tag, node)
            child = node.first_child
            if child is not None:
                depth += 1
                node = child
                continue
            writer.leave(tag)
        while node is not None and node.next is None and depth:
            node = node.parent
            depth -= 1
            if node is not None and node.tag:
                writer.leave(node.tag)
        node = node.next if node is not None and depth else None


class _Writer:
    """Collects the page in reading order as lines of Markdown."""

    def __init__(self, *, plain_pre: bool, layout_tables: frozenset[int]) -> None:
        self._lines: list[str] = []
        self._paragraphs: list[int] = []
        """For each line the number of its paragraph."""
        self._inline: list[str] = []
        self._lists: list[int | None] = []
        """One entry per open list: None for bullets, otherwise the number of the next item."""
        self._pre = 0
        self._plain_pre = plain_pre
        self._heading = 0
        self._bullet = ""
        self._cells: list[str] | None = None
        self._header_row = False
        self._layout_tables = layout_tables
        self._tables: list[bool] = []
        """One entry per open table: whether it only arranges the page."""
        self._tight = False

    def text(self) -> tuple[str, tuple[int, ...]]:
        self._flush()
        text = "\n".join(self._lines)
        # Without the tags and character references between them, signs may combine.
        return text if text.isascii() else normalized("NFC", text), tuple(self._paragraphs)

    def add(self, text: str) -> None:
        self._inline.append(text)

    def enter(self, tag: str, node: LexborNode) -> None:
        if tag == "br":
            self._inline.append("\n" if self._pre else _BREAK)
        elif tag == "td" or tag == "th":
            self._enter_cell(tag)
        elif tag in _TEXT_BLOCKS:
            if not self._pre and self._cells is None:
                self._flush()
            self._enter_block(tag, node)

    def leave(self, tag: str) -> None:
        if tag == "td" or tag == "th":
            self._leave_cell()
        elif tag in _TEXT_BLOCKS:
            self._leave_block(tag)

    def _enter_block(self, tag: str, node: LexborNode) -> None:
        if tag == "table":
            self._tables.append(node.mem_id in self._layout_tables)
        elif self._cells is not None:
            self._inline.append(" ")
        elif tag in _HEADINGS:
            self._heading = _HEADINGS[tag]
        elif tag in _LISTS:
            self._lists.append(_first_number(node) if tag == "ol" else None)
        elif tag == "li":
            self._bullet = self._next_bullet()
        elif tag == "tr":
            self._begin_row()
        elif tag == "pre":
            self._pre += 1

    def _leave_block(self, tag: str) -> None:
        if tag == "pre" and self._pre:
            self._leave_pre()
            return
        if tag == "tr" and self._cells is not None:
            self._end_row()
            return
        if self._cells is None and not self._pre:
            self._flush()
        if tag == "table" and self._tables:
            self._tables.pop()
            self._tight = False
        elif tag in _LISTS and self._lists and self._cells is None:
            self._lists.pop()
            self._tight = bool(self._lists)
        elif tag in _HEADINGS:
            self._heading = 0

    def _next_bullet(self) -> str:
        if not self._lists:
            return "- "
        number = self._lists[-1]
        indent = "  " * (min(len(self._lists), _MAX_LIST_INDENT) - 1)
        if number is None:
            return f"{indent}- "
        self._lists[-1] = number + 1
        return f"{indent}{number}. "

    def _begin_row(self) -> None:
        if not (self._tables and self._tables[-1]):
            self._cells = []
            self._header_row = False

    def _enter_cell(self, tag: str) -> None:
        if self._cells is None:
            self._flush()
            return
        self._inline.clear()
        self._header_row = self._header_row or (tag == "th" and not self._cells)

    def _leave_cell(self) -> None:
        if self._cells is None:
            self._flush()
            return
        self._cells.append(" ".join("".join(self._inline).replace(_BREAK, " ").split()))
        self._inline.clear()

    def _end_row(self) -> None:
        cells, self._cells = self._cells or [], None
        self._inline.clear()
        if not any(cells):
            return
        first = not (self._tight and self._lines and self._lines[-1].startswith("| "))
        self._emit(["| " + " | ".join(cells) + " |"], tight=True)
        if first and self._header_row:
            self._lines.append("|" + "---|" * len(cells))
            self._paragraphs.append(self._paragraphs[-1])

    def _leave_pre(self) -> None:
        self._pre -= 1
        if self._pre:
            return
        text = clean("".join(self._inline)).strip("\n").rstrip()
        if self._cells is not None:
            return
        self._inline.clear()
        if not text.strip():
            return
        if self._plain_pre:
            self._emit_paragraphs(text.split("\n"))
            return
        fence = fence_around(text)
        self._emit([fence, *text.split("\n"), fence])

    def _flush(self) -> None:
        """End the current paragraph, heading or item."""
        if not self._inline:
            return
        joined = "".join(self._inline)
        self._inline.clear()
        lines = [line for line in (" ".join(part.split()) for part in joined.split(_BREAK)) if line]
        if not lines:
            return
        if self._heading:
            self._emit(["#" * self._heading + " " + " ".join(lines)])
        elif self._bullet:
            bullet, self._bullet = self._bullet, ""
            self._emit([bullet + lines[0], *(" " * len(bullet) + line for line in lines[1:])], tight=True)
        elif self._lists:
            indent = "  " * min(len(self._lists), _MAX_LIST_INDENT)
            self._emit([indent + line for line in lines], tight=True)
        else:
            self._emit(lines)

    def _emit(self, lines: list[str], *, tight: bool = False) -> None:
        """Append lines, after a blank line except between list items or table rows."""
        number = self._paragraphs[-1] + 1 if self._paragraphs else 1
        if self._lines and not (tight and self._tight):
            self._lines.append("")
            self._paragraphs.append(number)
        self._lines += lines
        self._paragraphs += [number] * len(lines)
        self._tight = tight

    def _emit_paragraphs(self, lines: list[str]) -> None:
        """Append the lines of a text with blank lines between the paragraphs."""
        self._emit([])
        number = self._paragraphs[-1] if self._paragraphs else 0
        after_blank = not number
        for line in lines:
            blank = not line or line.isspace()
            number += after_blank and not blank
            after_blank = blank
            self._paragraphs.append(number)
        self._lines += lines


def _first_number(node: LexborNode) -> int:
    start = node.attributes.get("start") or "1"
    return int(start) if re.fullmatch(r"[0-9]{1,9}", start) else 1
