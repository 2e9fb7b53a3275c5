"""``penstock graph``: what a person and a program see of entities and relations."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Run

FILES = {
    "guide.md": "# Guide\n\nAnn Marlow of Acme Inc. went to Porto. See [the mill](pkg/mill.py).\n",
    "pkg/__init__.py": "",
    "pkg/mill.py": "from .tools import grind\n\n\nclass Mill:\n    def run(self):\n        return grind()\n",
    "pkg/tools.py": "def grind():\n    return 1\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    for name, text in FILES.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "files"


@pytest.fixture
def indexed(run: Run, folder: Path) -> Path:
    """The command itself runs the phase: when it ends, all entities are there."""
    run("index", str(folder), "--graph", "--include-code")
    return folder


def test_the_graph_of_a_folder(run: Run, ask, indexed: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(indexed)
    (mill,) = ask("graph", "entity", "mill", "--kind", "class")["entities"]
    assert (mill["name"], mill["kind"], mill["occurrences"]) == ("pkg.mill.Mill", "class", 1)
    (mention,) = mill["mentions"]
    assert mention["path"] == str(indexed / "pkg/mill.py")
    assert mention.keys() == {"source_id", "path", "page", "first_line", "chunk_id"}
    assert "pkg/mill.py" in run("graph", "entity", "pkg.mill.Mill").stdout

    near = ask("graph", "neighbours", "grind", "--hops", "2")
    assert {(node["name"], node["hops"]) for node in near["nodes"]} == {
        ("pkg.tools.grind", 0),
        ("pkg.mill.Mill.run", 1),
        ("pkg.tools", 1),
        ("pkg.mill.Mill", 2),
        ("pkg.mill", 2),
    }
    assert "calls" in run("graph", "neighbours", "grind").stdout

    assert run("graph", "path", "Mill", "grind").stdout.splitlines() == [
        "pkg.mill.Mill (class)",
        "  -- defines --> pkg.mill.Mill.run (method)",
        "  -- calls --> pkg.tools.grind (function)",
    ]
    assert run("graph", "path", "porto", "ann marlow").stdout.splitlines() == [
        "Porto (name)",
        "  <-- related -- Acme Inc. (organisation)",
        "  <-- related -- Ann Marlow (name)",
    ]
    assert "No relations" in run("graph", "path", "Porto", "grind", code=1).stdout
    stats = ask("graph", "stats")
    assert stats["relations"] == {
        "defines": 3,
        "related": 2,
        "calls": 1,
        "contains": 1,
        "imports": 1,
        "links": 1,
    }
    assert "From 3 chunks." in run("graph", "stats").stdout

    exported = json.loads(run("graph", "export").stdout)
    assert {"id", "name", "kind", "mentions"} == exported["nodes"][0].keys()
    assert {"source", "target", "kind", "weight", "mentions"} == exported["edges"][0].keys()
    ids = {node["id"] for node in exported["nodes"]}
    assert all({edge["source"], edge["target"]} <= ids for edge in exported["edges"])
    assert sum(stats["relations"].values()) == len(exported["edges"])
    tree = ElementTree.fromstring(run("graph", "export", "--format", "graphml").stdout)
    space = "{http://graphml.graphdrawing.org/xmlns}"
    assert len(tree.findall(f"{space}graph/{space}node")) == len(ids)
    assert len(tree.findall(f"{space}graph/{space}edge")) == len(exported["edges"])


def test_a_misspelt_name_gets_others_like_it(run: Run, indexed: Path):
    said = run("graph", "entity", "Mil", code=4).stderr
    assert "Similar names: pkg.mill.Mill (class)" in said
    assert "penstock graph export" in said
    assert "pkg.tools.grind (function)" in run("graph", "neighbours", "pkg.tools.gind", code=4).stderr
    assert "Porto (name)" in run("graph", "path", "grind", "Prto", code=4).stderr
    assert (
        "Similar names: pkg.mill.Mill (class)"
        in run("graph", "entity", "Mill", "--kind", "url", code=4).stderr
    )
    assert "Similar" not in run("graph", "entity", "Zebra", code=4).stderr


def test_files_without_pages_have_no_page(run: Run, ask, indexed: Path):
    heading = run("graph", "entity", "Mill", "--kind", "class").stdout.splitlines()[1]
    assert heading.split() == ["path", "line"]
    (mill,) = ask("graph", "entity", "Mill", "--kind", "class")["entities"]
    assert mill["mentions"][0]["page"] is None
    exported = json.loads(run("graph", "export").stdout)
    assert {mention["page"] for node in exported["nodes"] for mention in node["mentions"]} == {None}


def test_near_relations_come_first_and_hops_are_shown(run: Run, indexed: Path):
    first, *rows = run("graph", "neighbours", "grind", "--hops", "2").stdout.splitlines()
    assert first.split() == ["hop", "from", "relation", "to", "weight"]
    assert [int(row.split()[0]) for row in rows] == [1, 1, 2, 2]
    assert "hop" not in run("graph", "neighbours", "grind").stdout


def test_a_name_that_is_not_there(run: Run, app):
    assert "penstock index --graph" in run("graph", "entity", "Nobody", code=4).stderr
    assert "No entities" in run("graph", "stats").stdout
    assert json.loads(run("graph", "export").stdout) == {"nodes": [], "edges": []}


def test_a_picture_of_the_neighbours(run: Run, indexed: Path, tmp_path: Path):
    target = tmp_path / "mill.svg"
    assert "calls" in run("graph", "neighbours", "grind", "--svg", str(target)).stdout
    assert ElementTree.parse(target).getroot().tag.endswith("svg")
    refused = run("graph", "neighbours", "grind", "--svg", str(tmp_path / "no/where.svg"), code=1)
    assert "cannot write" in refused.stderr


def test_a_search_follows_relations_and_tells_which(run: Run, ask, indexed: Path, tmp_path: Path):
    shown = run("search", "--graph", "--explain", "who", "calls", "grind").stdout
    assert "graph rank 1 (pkg.mill.Mill.run calls pkg.tools.grind)" in shown
    hits = ask("search", "--graph", "who calls grind")["hits"]
    assert [("pkg/mill.py", 1)] == [
        (hit["path"].removeprefix(f"{indexed}/"), hit["graph_rank"]) for hit in hits if hit["graph_rank"]
    ]

    refused = run("search", "--graph", "--collection", "other", "who calls grind", code=4)
    assert "no entities were extracted" in refused.stderr
    assert "penstock index --graph" in refused.stderr
