"""Context for a prompt, and chunks like a given one, over an indexed folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidRequest, UnknownDocument
from penstock.service.hits import Hit
from tests.documents.conftest import IndexedFolder
from tests.servers.stores import FIRST, others_later

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)
MILL = "# The mill\n\nWater drives the wheel.\n\n" + " ".join(
    f"The wheel {number} turns in the river." for number in range(150)
)


@pytest.fixture
def mill(docs: IndexedFolder) -> IndexedFolder:
    docs.put("mill.md", f"{MILL}\n\n# Bread\n\n{'Bread is baked of flour. ' * 60}")
    docs.put("wheel.md", "The wheel turns in the river.")
    docs.put("bread.md", "Bread is baked of flour.")
    docs.index()
    return docs


def names(hits: list[Hit]) -> list[str]:
    return [Path(hit.path).name for hit in hits]


def test_a_line_chooses_the_chunk_that_is_compared(mill: IndexedFolder):
    path = mill.folder / "mill.md"
    last = len(path.read_text().splitlines())

    assert "wheel.md" == names(mill.app.similar(path, 5))[0]
    assert "bread.md" == names(mill.app.similar(path, last))[0]
    assert {"wheel.md", "bread.md"} == set(names(mill.app.similar(path)))


def test_what_is_similar_is_of_other_documents_of_the_tenant(mill: IndexedFolder):
    mill.index(mill.folder, tenant_id="other")
    (nearest, *_) = mill.app.similar(mill.folder / "wheel.md", per_source=1)

    assert ("mill.md", "default") == (Path(nearest.path).name, nearest.tenant_id)
    assert (1, None) == (nearest.vector_rank, nearest.keyword_rank)
    assert [nearest.path] == [hit.path for hit in mill.app.similar(mill.folder / "wheel.md", limit=1)]


def test_unknown_documents_and_lines_are_refused(mill: IndexedFolder):
    for path, line in (("none.md", None), ("mill.md", 1_000)):
        with pytest.raises(UnknownDocument):
            mill.app.similar(mill.folder / path, line)
    with pytest.raises(InvalidRequest):
        mill.app.similar(mill.folder / "mill.md", limit=0)


def test_a_context_has_the_neighbours_of_a_text_once(mill: IndexedFolder):
    context = mill.app.context("wheel in the river", max_tokens=5_000)

    (passage,) = [each for each in context.passages if each.path.endswith("mill.md")]
    assert len(passage.chunk_ids) > 1
    assert " ".join(MILL.split()) in " ".join(passage.text.split())
    assert context.text.startswith("[1] ")
    assert context.tokens <= 5_000


def test_a_context_keeps_its_budget_and_says_what_was_corrected(mill: IndexedFolder):
    context = mill.app.context("wheel in the rivre", max_tokens=80)

    assert 0 < context.tokens <= 80
    assert [("rivre", "river")] == [(each.word, each.searched) for each in context.corrections]
    with pytest.raises(InvalidRequest):
        mill.app.context("wheel", max_tokens=0)
