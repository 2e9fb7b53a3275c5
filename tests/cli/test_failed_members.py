"""Failed files inside others, as ``why``, ``documents show`` and ``index`` show them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.pipeline.mail_samples import mail

Ask = Callable[..., Any]

BROKEN = b"%PDF-1.4 broken"


@pytest.fixture
def mailed(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mail with attachments, five of them damaged."""
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    monkeypatch.setenv("PENSTOCK_SQLITE_SYNCHRONOUS", "NORMAL")
    path = tmp_path / "mail.eml"
    bad: dict[str, Any] = {f"b{number}__pdf": BROKEN + bytes([48 + number]) for number in range(5)}
    path.write_bytes(mail(a__md=b"# Flour", **bad))
    return path


def test_why_and_show_name_failed_attachments(run: Run, ask: Ask, mailed: Path):
    run("index", str(mailed), code=1)

    shown = run("why", str(mailed)).stdout
    assert "1 chunk of 1 page; 5 files inside it failed" in shown
    expected = (
        "\n5 files inside it failed:\n  ERR_PARSE, 5 files: Open the file with the program that made it"
    )
    assert expected in shown
    assert "\n    b0.pdf: the PDF cannot be opened" in shown
    assert "\n    and 2 more\n" in shown
    reason = ask("why", str(mailed))
    assert "indexed" == reason["verdict"]
    assert [f"b{number}.pdf" for number in range(5)] == [
        Path(one["path"]).name for one in reason["failed_inside"]
    ]
    assert {"ERR_PARSE"} == {one["code"] for one in reason["failed_inside"]}
    shown = run("documents", "show", str(mailed)).stdout
    assert re.search(r"^Inside +5 files inside it failed; see `penstock why`$", shown, re.MULTILINE)
    assert 5 == len(ask("documents", "show", str(mailed))["failed_inside"])
    assert "inside" not in run("why", str(mailed / "a.md")).stdout


def test_an_unchanged_mail_is_not_said_to_be_whole(run: Run, ask: Ask, mailed: Path):
    run("index", str(mailed), code=1)

    again = run("index", str(mailed)).stdout

    assert again.startswith("Unchanged, 5 cannot be read (unchanged) in ")
    assert "\n5 cannot be read (unchanged since " in again
    assert f"\nAll of them: penstock why {mailed}" in again
    assert 5 == len(ask("index", str(mailed))["failed_before"])
    retried = run("index", str(mailed), "--retry-failed", code=1).stdout
    assert retried.startswith("Unchanged, 5 failed in ")
