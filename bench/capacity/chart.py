"""Line charts as SVG, in the form of the bar charts of ``bench.peers``.

The horizontal axis has one place for each point, as sizes grow by a factor. The vertical axis begins at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec

from bench.peers.chart import LINE, MARGIN, STYLE, WIDTH

COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#9a6700")
PANEL_HEIGHT = 150
LEFT = 64
RIGHT = 170
"""Room for numbers on the left and for names on the right."""
TICKS = 3
LINES = """
.axis { stroke: #d1d9e0; stroke-width: 1 }
polyline { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { .axis { stroke: #3d444d } }
"""


class Series(msgspec.Struct, frozen=True):
    name: str
    values: Sequence[float | None]


class LinePanel(msgspec.Struct, frozen=True):
    """Lines over the same places, on a common scale."""

    title: str
    places: Sequence[str]
    series: Sequence[Series]


def drawn(title: str, note: str, panels: Sequence[LinePanel]) -> str:
    top = MARGIN + LINE
    parts = [_text(MARGIN, top - 4, title, "title"), _text(MARGIN, top + LINE - 4, note, "quiet")]
    top += LINE
    for panel in panels:
        top += LINE + 8
        parts.append(_text(MARGIN, top, panel.title, "panel"))
        parts += _panel(panel, top + 10)
        top += PANEL_HEIGHT + LINE + 14
    height = top + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">'
    )
    card = f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>'
    return "\n".join([head, f"<style>{STYLE}{LINES}</style>", card, *parts, "</svg>", ""])


def _panel(panel: LinePanel, top: float) -> list[str]:
    most = max((value or 0.0 for each in panel.series for value in each.values), default=0.0) or 1.0
    right, bottom = WIDTH - MARGIN - RIGHT, top + PANEL_HEIGHT
    parts = []
    for tick in range(TICKS + 1):
        y = bottom - PANEL_HEIGHT * tick / TICKS
        parts.append(f'<line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, _number(most * tick / TICKS), "number", anchor="end"))
    step = (right - LEFT) / max(len(panel.places) - 1, 1)
    for at, place in enumerate(panel.places):
        parts.append(_text(LEFT + at * step, bottom + LINE, place, "number", anchor="middle"))
    ends: list[float] = []
    for at, each in enumerate(panel.series):
        points = [
            (LEFT + place * step, bottom - PANEL_HEIGHT * value / most)
            for place, value in enumerate(each.values)
            if value is not None
        ]
        if points:
            parts += _line(each.name, points, COLOURS[at % len(COLOURS)], ends)
    return parts


def _line(name: str, points: Sequence[tuple[float, float]], colour: str, ends: list[float]) -> list[str]:
    """A line with its name at the end; ``ends`` are the places of names so far."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    while any(abs(y - other) < 14 for other in ends):
        y -= 14
    ends.append(y)
    dots = [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in points]
    label = f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" style="fill: {colour}">{escape(name)}</text>'
    return [f'<polyline points="{path}" stroke="{colour}"/>', *dots, label]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
