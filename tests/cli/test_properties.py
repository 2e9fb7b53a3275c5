"""Warnings and properties of documents in ``documents show``, ``why``, ``documents list`` and ``search``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from tests.cli.conftest import Run
from tests.pipeline.office_samples import powerpoint, shape
from tests.pipeline.sample_documents import docx, paragraph

GUESSED = "Die Mühle läuft, sagte der Müller gestern früh. ".encode("cp1252") * 3


@pytest.fixture
def folder(app: Penstock, tmp_path: Path) -> Path:
    """Two files, indexed in a thread of this process: one with a guessed encoding."""
    below = tmp_path / "files"
    below.mkdir()
    (below / "old.txt").write_bytes(GUESSED)
    (below / "mill.md").write_text("# Étude of the mill\n\nWater drives the wheel.\n")
    with app.worker_thread():
        app.wait(app.index(below).job_id, timeout=60)
    return below


@pytest.fixture
def state(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    monkeypatch.setenv("COLUMNS", "160")
    return state


def test_a_guessed_encoding_is_shown_after_the_job(run: Run, ask: Callable[..., Any], folder: Path):
    shown = run("documents", "show", str(folder / "old.txt")).stdout
    assert "\nWarning " in shown
    (warning,) = ask("documents", "show", str(folder / "old.txt"))["document"]["properties"]["warnings"]
    assert "guessed" in warning
    assert warning in shown
    assert warning in run("why", str(folder / "old.txt")).stdout
    assert [warning] == ask("why", str(folder / "old.txt"))["warnings"]
    (hit,) = ask("search", "gestern", "--mode", "keyword")["hits"]
    assert [warning] == hit["properties"]["warnings"]
    assert "Warning" not in run("why", str(folder / "mill.md")).stdout


def test_filters_narrow_a_search_and_a_list(ask: Callable[..., Any], folder: Path):
    def listed(*narrowed: str) -> list[str]:
        found = ask("documents", "list", *narrowed)["documents"]
        return sorted(Path(one["path"]).name for one in found)

    assert ["mill.md"] == listed("--title", "etude OF")
    assert ["old.txt"] == listed("--type", ".TXT")
    assert [] == listed("--author", "curie")
    assert [] == listed("--created-after", "1900")
    assert 1 == len(ask("search", "water mühle", "--title", "étude")["hits"])
    assert [] == ask("search", "water mühle", "--language", "de")["hits"]


def test_a_date_that_is_none_is_refused(run: Run):
    refused = run("search", "water", "--created-after", "yesterday", code=1)

    assert "created_after: 'yesterday' is not a date" in refused.stderr
    assert "2024-05-01" in refused.stderr


def test_hits_name_slides_and_paragraphs(run: Run, ask: Callable[..., Any], app: Penstock, tmp_path: Path):
    (tmp_path / "mill.pptx").write_bytes(powerpoint(shape("A first slide"), shape("The sluice is open")))
    (tmp_path / "gate.docx").write_bytes(docx(paragraph("A first paragraph"), paragraph("The weir leaks")))
    with app.worker_thread():
        for name in ("mill.pptx", "gate.docx"):
            app.wait(app.index(tmp_path / name).job_id, timeout=60)

    assert "mill.pptx, slide 2\n" in run("search", "sluice", "--mode", "keyword").stdout
    (hit,) = ask("search", "sluice", "--mode", "keyword")["hits"]
    assert (2, "slide") == (hit["page"], hit["page_unit"])
    assert "gate.docx, paragraph 1\n" in run("search", "weir", "--mode", "keyword").stdout
    (hit,) = ask("search", "weir", "--mode", "keyword")["hits"]
    assert (None, 1, 2, "paragraph") == tuple(
        hit[name] for name in ("page", "first_line", "last_line", "position_unit")
    )
    author = ask("documents", "show", str(tmp_path / "mill.pptx"))["document"]["properties"]["author"]
    assert author
    for narrowed in (
        ("--author", author.upper()),
        ("--language", "en"),
        ("--created-after", "2024-01-31", "--created-before", "2024-02-01"),
    ):
        listed = ask("documents", "list", *narrowed)["documents"]
        assert [str(tmp_path / "mill.pptx")] == [one["path"] for one in listed]
