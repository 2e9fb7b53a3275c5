"""Styles of OpenDocument files: which paragraphs are titles or code, and which lists are numbered."""

from __future__ import annotations

from penstock.pipeline.extract.office.docx_styles import small_number
from penstock.pipeline.extract.office.xml_events import Attributes

_LEVELS = {"Title": 1, "Subtitle": 2}
_CODE = "Preformatted_20_Text"


class OdfStyles:
    """Paragraph and list styles, of ``styles.xml`` and of the automatic styles in ``content.xml``."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        self._numbered: set[tuple[str, int]] = set()
        self._list_style = ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "style:style" and attributes.get("style:family") == "paragraph":
            self._parents[attributes.get("style:name", "")] = attributes.get("style:parent-style-name", "")
        elif name == "text:list-style":
            self._list_style = attributes.get("style:name", "")
        elif name == "text:list-level-style-number":
            level = small_number(attributes.get("text:level", "")) or 1
            # Without a format the items show no number.
            if attributes.get("style:num-format"):
                self._numbered.add((self._list_style, level))

    def end(self, name: str) -> None: ...

    def text(self, data: str) -> None: ...

    def is_numbered(self, list_style: str, level: int) -> bool:
        return (list_style, level) in self._numbered

    def heading_level(self, style: str) -> int:
        """Heading level of a paragraph style; 0 for other styles."""
        return _LEVELS.get(self._root(style), 0)

    def is_title(self, style: str) -> bool:
        return self._root(style) == "Title"

    def is_code(self, style: str) -> bool:
        return self._root(style) == _CODE

    def _root(self, style: str) -> str:
        """Nearest known base style of a style. Each is looked up once."""
        passed: list[str] = []
        while style not in self._roots and style not in _LEVELS and style != _CODE and style:
            self._roots[style] = ""
            passed.append(style)
            style = self._parents.get(style, "")
        root = self._roots.get(style, style)
        self._roots.update(dict.fromkeys(passed, root))
        return root
