"""``penstock collection``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.conftest import Run


def test_collections_are_listed_shown_and_cleared(run: Run, ask: Any, tmp_path: Path):
    assert "There are no collections" in run("collection", "list").output
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("The gate.")
    run("index", str(docs), "--collection", "mill")

    (listed,) = ask("collection", "list")["collections"]
    assert ("mill", 1) == (listed["collection"], listed["documents"])
    assert listed | {"open_jobs": 0} == ask("collection", "show", "mill")
    assert "Documents" in run("collection", "show", "mill").output

    unsure = run("collection", "clear", "mill", code=1)
    assert "confirmation is required" in unsure.stderr
    done = ask("collection", "clear", "mill", "--yes")
    assert ("done", {"outcome": "removed", "removed": 1}) == (done["status"], done["result"])
    assert "There are no collections" in run("collection", "list").output
    assert (docs / "a.md").exists()


def test_a_collection_that_is_not_there_has_its_exit_code(run: Run):
    for words in (("show", "mil"), ("clear", "mil", "--yes")):
        refused = run("collection", *words, code=4)
        assert "no collection 'mil'" in refused.stderr
        assert "penstock collection list" in refused.stderr
