"""Search that follows relations: the same rule on both databases, and a refusal where there is no graph."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import pytest

from penstock.errors import NotInGraph
from penstock.service.hits import Hit
from penstock.service.requests import FilteredScope
from tests.documents.conftest import IndexedFolder

pytestmark = pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)

GATE = '''
"""Gates of the penstock."""


def open_gate(width):
    """Lift the shutter so that water flows."""
    return lifted(width)


def lifted(width):
    return width * 2
'''
MILL = """
from mill.gate import open_gate


class Mill:
    def start_work(self):
        grain = ["wheat", "rye"]
        open_gate(len(grain))
"""
WINDMILL = "from mill.mill import Mill\n\n\nclass Windmill(Mill):\n    sails = 4\n"
FILLER = "def {0}():\n    return 'The {0} of the village has its own words, and no shutter.'\n"


@pytest.fixture
def mill(docs: IndexedFolder) -> IndexedFolder:
    docs.put("src/mill/__init__.py", "from mill.gate import open_gate\n")
    docs.put("src/mill/gate.py", GATE)
    docs.put("src/mill/mill.py", MILL)
    docs.put("src/mill/windmill.py", WINDMILL)
    docs.put("src/mill/log.py", '"""A note on open_gate, which it does not use: water and shutter."""\n')
    for name in ("baker", "smith", "tailor", "cooper", "priest", "mayor"):
        docs.put(f"src/mill/{name}.py", FILLER.format(name))
    docs.put("people.md", "Ann Marlow went to Porto.\n")
    docs.put("towns.md", "They say that Porto is a port.\n")
    extract(docs)
    return docs


def extract(docs: IndexedFolder, path: Path | None = None, **options: object) -> None:
    with docs.manual_worker() as worker:
        docs.app.index(path or docs.folder, include_code=True, graph=True, **options)  # type: ignore[arg-type]
        worker.drain()


def ask(docs: IndexedFolder, query: str, **scope: Unpack[FilteredScope]) -> list[Hit]:
    return docs.app.search(query, graph=True, mode="keyword", **scope)


def reached(hits: list[Hit]) -> dict[str, str]:
    return {Path(hit.path).name: hit.relation for hit in hits if hit.graph_rank is not None}


CALL = "mill.mill.Mill.start_work calls mill.gate.open_gate"
ASKED = {
    "who calls open_gate": ("mill.py", CALL),
    "what does start_work call": ("gate.py", CALL),
    "what does Mill.start_work call": ("gate.py", CALL),
    "subclasses of Mill": ("windmill.py", "mill.windmill.Windmill inherits mill.mill.Mill"),
    "callers of the function to lift the shutter so that water flows": ("mill.py", CALL),
    "Ann Marlow": ("towns.md", "Ann Marlow related Porto"),
}


def test_relations_lead_to_chunks_without_the_words(mill: IndexedFolder):
    for query, (name, relation) in ASKED.items():
        hits = ask(mill, query)

        assert relation == reached(hits).get(name), query
        assert name in [Path(hit.path).name for hit in hits[:2]], query
        assert all(0 <= hit.score <= 1 for hit in hits)
        assert not hits[0].weak
    assert {None} == {hit.graph_rank for hit in mill.app.search("who calls open_gate")}
    packed = mill.app.context("what does start_work call", graph=True, mode="keyword")
    assert any(passage.path.endswith("gate.py") for passage in packed.passages)


def test_filters_and_quoted_phrases_hold_for_what_relations_lead_to(mill: IndexedFolder):
    assert {} == reached(ask(mill, "who calls open_gate", path="*/gate.py"))
    assert {"mill.py"} == reached(ask(mill, 'who calls open_gate "wheat rye"')).keys()
    assert {} == reached(ask(mill, 'who calls open_gate "no shutter"'))


def test_no_relation_leads_to_another_tenant_or_a_removed_file(mill: IndexedFolder):
    other = mill.put(
        "other/src/mill/spy.py", "from mill.gate import open_gate\n\n\ndef spy():\n    open_gate(1)\n"
    )
    extract(mill, other.parents[2], tenant_id="other")

    assert {"mill.py"} == reached(ask(mill, "who calls open_gate")).keys()
    assert {"spy.py"} == reached(ask(mill, "who calls open_gate", tenant_id="other")).keys()

    (mill.folder / "src/mill/mill.py").unlink()
    extract(mill, mill.folder / "src")
    assert {} == reached(ask(mill, "who calls open_gate"))


def test_a_scope_without_entities_is_refused_with_the_remedy(docs: IndexedFolder):
    docs.put("with/note.md", "Ann Marlow opens the gate.")
    extract(docs)
    plain = docs.put("plain/note.md", "Ann Marlow shuts the gate.")
    with docs.manual_worker() as worker:
        docs.app.index(plain.parent, collection="plain")
        worker.drain()

    scopes: list[FilteredScope] = [{"collection": "plain"}, {"tenant_id": "nobody"}, {"path": "*/none/*"}]
    for scope in scopes:
        with pytest.raises(NotInGraph, match="no entities were extracted") as refused:
            ask(docs, "who calls open_gate", **scope)
        assert "penstock index --graph" in str(refused.value.remedy)
    assert ask(docs, "gate", collection="default")
