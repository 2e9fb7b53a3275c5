"""Misspelt words of a query: corrected where no document has them, and said so; the same in every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.service.requests import Mode
from tests.documents.conftest import IndexedFolder
from tests.servers.stores import FIRST, others_later

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)


@pytest.fixture
def mill(docs: IndexedFolder) -> IndexedFolder:
    docs.put("mill.md", "The penstock carries water to the turbines of the mill.")
    docs.put("gate.md", "The gate is frozen. A gate, a gaet and a date.")
    docs.put("dates.md", "Dates of payments.")
    docs.index()
    return docs


def asked(folder: IndexedFolder, query: str, **options: object) -> tuple[list[str], list[tuple[str, str]]]:
    answer = folder.app._assembly.search.ask(query, **options)  # type: ignore[arg-type]
    fixed = [(each.word, each.searched) for each in answer.corrections]
    return [Path(hit.path).name for hit in answer.hits], fixed


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
def test_a_misspelt_word_is_corrected_in_every_mode(mill: IndexedFolder, mode: Mode):
    names, fixed = asked(mill, "penstokce", mode=mode)

    assert ("mill.md", [("penstokce", "penstock")]) == (names[0], fixed)


def test_each_misspelt_word_is_corrected_to_the_form_of_the_text(mill: IndexedFolder):
    names, fixed = asked(mill, "Turbnies of the paymant", mode="keyword")

    assert [("Turbnies", "turbines"), ("paymant", "payments")] == fixed
    assert {"mill.md", "dates.md"} == set(names)


@pytest.mark.parametrize(
    "query", ["gaet", "frozen gates", '"penstokce"', "violin", "PENSTOKC", "penstokc2", "frozen Penstokc"]
)
def test_known_words_quoted_words_and_names_are_left_alone(mill: IndexedFolder, query: str):
    assert [] == asked(mill, query)[1]


def test_a_word_that_people_use_is_left_alone(docs: IndexedFolder):
    docs.put("scan.md", "Tomography of free water in five parts.")
    docs.index()

    for word in ("topography", "tree", "later", "file"):
        assert [] == asked(docs, f"{word} parts")[1], word
    assert [("tomograhpy", "tomography")] == asked(docs, "tomograhpy parts")[1]
    assert [("watr", "water")] == asked(docs, "watr")[1]


def test_an_exact_search_corrects_nothing(mill: IndexedFolder):
    assert ([], []) == asked(mill, "penstokce", mode="keyword", exact=True)


def test_words_of_other_tenants_are_neither_known_nor_offered(mill: IndexedFolder):
    mill.put("other/secret.md", "The turbins and the password are tricked.")
    mill.index(mill.folder / "other", tenant_id="other")

    assert [] == asked(mill, "passwrd", mode="keyword")[1]
    assert [("trikced", "tricked")] == asked(mill, "trikced", mode="keyword", tenant_id="other")[1]


def test_a_word_of_the_tenant_is_known_wherever_it_is(mill: IndexedFolder):
    mill.put("notes/note.md", "The millet is eaten.")
    mill.index(mill.folder / "notes", collection="notes")

    assert [] == asked(mill, "millet", collection="default", mode="keyword")[1]
