"""A neighbourhood of the graph as an SVG picture: rings by distance, readable on light and dark pages.

The layout is a function of nodes and edges alone, so the same neighbourhood gives the same file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

import msgspec

from penstock.catalog.graph import Edge, Neighbourhood, Node

_RING = 210
"""Least distance of two rings: a label fits in between."""
LINE = 17
"""Room of a label across its direction."""
_DOT = 6
_MARGIN = 230
_MAX_LABEL = 30
_COLOURS = ("#2563a8", "#b4530a", "#25794a", "#9a3a8f", "#a12c2c", "#6f6a14", "#3d5a80", "#7a4b2a")
"""Colours of kinds, in the order of their frequency. Each is readable on white and, brightened, on black."""
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1b1f24; }
.start text { font-weight: 700; font-size: 14px; }
.edge { fill: none; stroke: #6b7280; stroke-opacity: .55; }
.head { fill: #6b7280; }
.halo { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; }
.page { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8eb; }
  .edge { stroke: #9aa4b2; }
  .head { fill: #9aa4b2; }
  .halo { stroke: #14171a; }
  .page { fill: #14171a; }
  circle { filter: brightness(1.5); }
}
"""


class _Spot(msgspec.Struct, frozen=True):
    """Position of a node. ``angle``: direction from the centre, in radians."""

    x: float
    y: float
    angle: float


def neighbourhood_svg(found: Neighbourhood) -> str:
    """The picture as the text of a file."""
    spots = _layout(found)
    colours = _colours([node for node, _ in found.nodes])
    named = {node.id: node.name for node, _ in found.nodes}
    reach = max((math.hypot(spot.x, spot.y) for spot in spots.values()), default=0) + _MARGIN
    # Room for the list of kinds below.
    height = 2 * reach + LINE * (len(colours) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-reach:.0f} {-reach:.0f} {2 * reach:.0f} '
        f'{height:.0f}" role="img">',
        f"<title>{xml_text(_title(found))}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect class="page" x="{-reach:.0f}" y="{-reach:.0f}" width="{2 * reach:.0f}" '
        f'height="{height:.0f}"/>',
        *(_edge(edge, spots, named) for edge in found.edges),
        *(_node(node, far, spots[node.id], colours) for node, far in found.nodes),
        *_legend(colours, reach),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _title(found: Neighbourhood) -> str:
    start = ", ".join(dict.fromkeys(node.name for node, far in found.nodes if far == 0))
    return f"Entities around {start}"


def _layout(found: Neighbourhood) -> dict[int, _Spot]:
    """Place nodes on rings by distance, near the related nodes of the inner ring."""
    near: dict[int, list[int]] = {}
    for edge in found.edges:
        near.setdefault(edge.source, []).append(edge.target)
        near.setdefault(edge.target, []).append(edge.source)
    rings: dict[int, list[Node]] = {}
    for node, far in found.nodes:
        rings.setdefault(far, []).append(node)
    spots: dict[int, _Spot] = {}
    radius = 0.0
    for far in sorted(rings):
        ring = rings[far]
        ring.sort(key=lambda node: (_towards(near.get(node.id, ()), spots), node.kind, node.name, node.id))
        around = len(ring) * LINE / (2 * math.pi)
        if far == 0:
            radius = 0.0 if len(ring) == 1 else max(around, 60.0)
        else:
            radius = max(radius + _RING, around)
        for place, node in enumerate(ring):
            angle = 2 * math.pi * (place + 0.5 * (far % 2)) / len(ring)
            spots[node.id] = _Spot(radius * math.cos(angle), radius * math.sin(angle), angle)
    return spots


def _towards(neighbours: Sequence[int], spots: Mapping[int, _Spot]) -> float:
    """Direction of the placed neighbours, from 0 to one turn."""
    known = [spots[number] for number in neighbours if number in spots]
    if not known or all(spot.x == spot.y == 0 for spot in known):
        return 0.0
    return math.atan2(sum(spot.y for spot in known), sum(spot.x for spot in known)) % (2 * math.pi)


def _colours(nodes: Sequence[Node]) -> dict[str, str]:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.kind] = counts.get(node.kind, 0) + 1
    kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))
    return {kind: _COLOURS[place % len(_COLOURS)] for place, kind in enumerate(kinds)}


def _edge(edge: Edge, spots: Mapping[int, _Spot], named: Mapping[int, str]) -> str:
    start, end = spots[edge.source], spots[edge.target]
    length = math.hypot(end.x - start.x, end.y - start.y) or 1.0
    # To the rim of both dots.
    dx, dy = (end.x - start.x) / length * (_DOT + 2), (end.y - start.y) / length * (_DOT + 2)
    width = 1 + min(math.log2(1 + max(edge.weight, 0.0)), 4.0)
    told = f"{named[edge.source]} {edge.kind} {named[edge.target]} ({edge.weight:g})"
    return (
        f'<path class="edge" stroke-width="{width:.1f}" marker-end="url(#head)" '
        f'd="M{start.x + dx:.1f} {start.y + dy:.1f}L{end.x - dx:.1f} {end.y - dy:.1f}">'
        f"<title>{xml_text(told)}</title></path>"
    )


def _node(node: Node, far: int, spot: _Spot, colours: Mapping[str, str]) -> str:
    label = node.name if len(node.name) <= _MAX_LABEL else f"{node.name[: _MAX_LABEL - 1]}…"
    turn = math.degrees(spot.angle) if far else 0.0
    # On the left the label is turned round, so that no text stands on its head.
    flipped = 90 < turn < 270
    turn, x, anchor = (turn - 180, -_DOT - 5, "end") if flipped else (turn, _DOT + 5, "start")
    y = 4
    if far == 0:
        x, y, anchor = 0, -_DOT - 7, "middle"
    return (
        f'<g class="{"node" if far else "start"}" transform="translate({spot.x:.1f} {spot.y:.1f})">'
        f"<title>{xml_text(f'{node.name} ({node.kind}), {node.occurrences}')}</title>"
        f'<circle r="{_DOT if far else _DOT + 3}" fill="{colours[node.kind]}"/>'
        f'<text class="halo" x="{x}" y="{y}" text-anchor="{anchor}" transform="rotate({turn:.1f})">'
        f"{xml_text(label)}</text></g>"
    )


def _legend(colours: Mapping[str, str], reach: float) -> Iterator[str]:
    for place, (kind, colour) in enumerate(colours.items()):
        y = reach + place * LINE
        yield (
            f'<circle cx="{-reach + 20:.0f}" cy="{y:.0f}" r="{_DOT}" fill="{colour}"/>'
            f'<text x="{-reach + 34:.0f}" y="{y + 4:.0f}">{xml_text(kind)}</text>'
        )


def xml_text(text: str) -> str:
    """Text escaped for XML, with invalid characters replaced."""
    return escape("".join(char if _is_allowed(char) else "\ufffd" for char in text))


def _is_allowed(char: str) -> bool:
    return char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char > "\uffff"
