"""Bar charts as SVG, by hand: a few rectangles and texts need no library.

A chart brings its own background and knows both colour schemes, so it can be read wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import msgspec

from bench.peers.figures import Figures

WIDTH = 760
MARGIN = 16
NAMES = 120
NUMBERS = 110
"""Room for names on the left and for numbers on the right."""
BAR = 9
GAP = 9
LINE = 20

STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; font-size: 12px; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.panel { font-weight: 600 }
.quiet, .number { fill: #59636e }
.card { fill: #ffffff; stroke: #d1d9e0 }
.ours { fill: #0969da }
.peer { fill: #818b98 }
.floor { fill: #c8d1da }
.second { opacity: 0.6 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .quiet, .number { fill: #9198a1 }
  .card { fill: #0d1117; stroke: #3d444d }
  .ours { fill: #4493f8 }
  .floor { fill: #3d444d }
}
"""


Values = Callable[[Figures], tuple[float | None, ...]]


class Row(msgspec.Struct, frozen=True):
    name: str
    kind: str
    """``ours``, ``peer`` or ``floor``."""
    values: tuple[float | None, ...]

    def series(self) -> int:
        """How many bars it takes to show the last one there is."""
        return max((place for place, value in enumerate(self.values, 1) if value is not None), default=0)


class Panel(msgspec.Struct, frozen=True):
    """Bars on a scale of their own."""

    title: str
    rows: Sequence[Row]


def drawn(title: str, note: str, form: str, panels: Sequence[Panel]) -> str:
    parts, top = [], MARGIN + LINE
    parts.append(_text(MARGIN, top - 4, title, "title"))
    parts.append(_text(MARGIN, top + LINE - 4, note, "quiet"))
    top += LINE + GAP
    for panel in panels:
        top += LINE
        parts.append(_text(MARGIN, top, panel.title, "panel"))
        top += GAP
        longest = max((value or 0.0 for row in panel.rows for value in row.values), default=0.0)
        for row in panel.rows:
            parts += _bars(row, top, form, longest)
            top += _height(row)
    height = top + MARGIN
    card = f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", card, *parts, "</svg>", ""])


def _height(row: Row) -> int:
    return len(row.values) * BAR + GAP


def _bars(row: Row, top: int, form: str, longest: float) -> list[str]:
    left, room = MARGIN + NAMES, WIDTH - 2 * MARGIN - NAMES - NUMBERS
    middle = top + len(row.values) * BAR // 2 + 4
    parts = [_text(left - 8, middle, row.name, end=True)]
    shown = [value for value in row.values if value is not None]
    for place, value in enumerate(row.values):
        if value is not None:
            # What is there can be seen, however small.
            width = max(1.0, room * value / longest) if longest else 1.0
            kind = row.kind + (" second" if place else "")
            parts.append(
                f'<rect class="{kind}" x="{left}" y="{top + place * BAR}" width="{width:.1f}" '
                f'height="{BAR - 1}"/>'
            )
    if shown:
        end = left + max(1.0, room * max(shown) / longest if longest else 1.0)
        numbers = " · ".join("–" if value is None else f"{value:{form}}" for value in row.values)
        parts.append(_text(end + 6, middle, numbers, "number"))
    else:
        parts.append(_text(left, middle, "not measured", "quiet"))
    return parts


def _text(x: float, y: float, text: str, kind: str = "", *, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(text)}</text>'
