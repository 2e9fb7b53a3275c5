"""Corrected searches, contexts and similar chunks on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run


def folder(tmp_path: Path, run: Run) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "mill.md").write_text("# Mill\n\nThe penstock carries water to the turbines.\n")
    (docs / "wheel.md").write_text("# Wheel\n\nWater of the penstock turns the wheel.\n")
    (docs / "12:3").write_text("The penstock of a file with a strange name.\n")
    run("index", str(docs))
    return docs


def test_corrections_contexts_and_similar_chunks(tmp_path: Path, run: Run, ask: Callable[..., Any]):
    docs = folder(tmp_path, run)

    shown = " ".join(run("search", "penstokc", "turbines").stdout.split())
    assert 'Searched for "penstock" instead of "penstokc". --exact searches for the words as given.' in shown
    assert [{"word": "penstokc", "searched": "penstock"}] == ask("search", "penstokc")["corrections"]
    assert [] == ask("search", "penstokc", "--exact")["corrections"]

    context = run("context", "penstock", "turbines").stdout
    assert context.startswith(f"[1] {docs}/mill.md:1-3 (Mill)\n# Mill\n\nThe penstock carries water")
    found = ask("context", "penstock", "turbines", "--max-tokens", "60")
    assert (60, True) == (found["max_tokens"], found["tokens"] <= 60)
    assert [1] == [passage["number"] for passage in found["passages"]]

    (near, *_) = ask("similar", f"{docs}/mill.md:3")["hits"]
    assert f"{docs}/mill.md" != near["path"]
    assert "similarity" in run("similar", f"{docs}/mill.md", "-n", "1").stdout
    assert 2 == len(ask("similar", f"{docs}/12:3")["hits"])
    assert "has no text at 90: it has 3 lines" in run("similar", f"{docs}/mill.md:90", code=4).stderr
