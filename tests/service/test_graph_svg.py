"""The picture of a neighbourhood: well-formed, the same each time, and without a name that is not escaped."""

from __future__ import annotations

import itertools
import math
import re
from xml.etree import ElementTree

from penstock.catalog.graph import Edge, Neighbourhood, Node
from penstock.service.graph import LINE, neighbourhood_svg

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>alert('x')</script> & \x00 \ud800 \"q\""


def around(*rings: int) -> Neighbourhood:
    """A node in the middle, and rings of so many nodes that are related to the ring before."""
    nodes, edges, last = [(Node(0, "Mill", "class", 3), 0)], [], [0]
    numbers = itertools.count(1)
    for far, count in enumerate(rings, 1):
        ring = list(itertools.islice(numbers, count))
        nodes += [(Node(number, f"node {number}", "function", 1), far) for number in ring]
        edges += [Edge(last[place % len(last)], number, "calls", 1.0) for place, number in enumerate(ring)]
        last = ring
    return Neighbourhood(nodes, edges)


def places(picture: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"translate\((-?[\d.]+) (-?[\d.]+)\)", picture)]


def test_nodes_edges_and_kinds_are_drawn_and_the_file_is_the_same_each_time():
    found = around(5, 9)
    picture = neighbourhood_svg(found)
    assert picture == neighbourhood_svg(found)
    root = ElementTree.fromstring(picture)
    assert len(root.findall(f"{SVG}g")) == 15
    assert len(root.findall(f"{SVG}path")) == 14
    assert [text.text for text in root.findall(f"{SVG}text")] == ["function", "class"]
    assert root.findtext(f"{SVG}title") == "Entities around Mill"
    assert "prefers-color-scheme: dark" in picture


def test_labels_have_room_and_stand_inside_the_picture():
    picture = neighbourhood_svg(around(40, 400))
    spots = places(picture)
    apart = min(math.dist(one, other) for one, other in itertools.combinations(spots, 2))
    assert apart >= LINE * 0.99
    left, top, width, height = map(
        float,
        re.search(r'viewBox="([-\d. ]+)"', picture)[1].split(),  # type: ignore[index]
    )
    assert all(left < x < left + width and top < y < top + height for x, y in spots)


def test_hostile_and_long_names_are_text():
    nodes = [(Node(1, HOSTILE, "name", 1), 0), (Node(2, "x" * 300, "<b>", 1), 1)]
    picture = neighbourhood_svg(Neighbourhood(nodes, [Edge(1, 2, "a<b", 2.0)]))
    root = ElementTree.fromstring(picture)
    assert root.findall(f".//{SVG}script") == []
    assert max(len(text.text or "") for text in root.iter(f"{SVG}text")) <= 30


def test_several_entities_of_a_name_and_one_alone():
    alone = neighbourhood_svg(Neighbourhood([(Node(1, "Ann", "name", 1), 0)], []))
    assert places(alone) == [(0.0, 0.0)]
    twins = [(Node(1, "Ann", "name", 1), 0), (Node(2, "Ann", "person", 1), 0)]
    first, second = places(neighbourhood_svg(Neighbourhood(twins, [])))
    assert math.dist(first, second) > 100
