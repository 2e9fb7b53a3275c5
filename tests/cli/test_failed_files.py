"""Failed files as ``why``, ``documents show`` and ``index`` show them: inside others, and by remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.index import print_reasons
from penstock.service.why import FailedPath
from tests.cli.conftest import Run
from tests.pipeline.mail_samples import mail
from tests.pipeline.scanned_documents import scan

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


def test_a_job_tells_failed_files_from_those_inside_others(run: Run, ask: Ask, mailed: Path):
    (mailed.parent / "docs").mkdir()
    mailed.rename(mailed.parent / "docs" / "mail.eml")
    (mailed.parent / "docs" / "bad.pdf").write_bytes(BROKEN)
    (mailed.parent / "docs" / "a.md").write_text("# Mill")
    job_id = ask("index", str(mailed.parent / "docs"), code=1)["job_id"]

    shown = run("jobs", job_id).stdout

    assert re.search(r"^Children +0 open, 2 failed$", shown, re.MULTILINE)
    assert re.search(r"^Progress +3 of 3 files .*, 6 failed \(5 inside other files\)$", shown, re.MULTILINE)
    assert re.search(r"^Result +2 files indexed, .*, 6 failed \(5 inside other files\)$", shown, re.MULTILINE)
    for part in ("progress", "result"):
        found = ask("jobs", job_id)[part]
        assert (1, 5) == (found["failed"], found["failed_inside"])
    (container,) = [
        job["job_id"]
        for job in ask("jobs", "--children")["jobs"]
        if job["payload"].get("file_path", "").endswith("mail.eml")
    ]
    shown = run("jobs", container).stdout
    assert re.search(r"^Inside +0 open, 5 failed$", shown, re.MULTILINE)
    assert "5 of 6 files inside it failed (" in shown
    progress = ask("jobs", container)["progress"]
    assert (0, 5) == (progress["failed"], progress["failed_inside"])


def failed(name: str, remedy: str, code: str = "ERR_COMPONENT_MISSING") -> FailedPath:
    return FailedPath(
        path=f"/docs/{name}",
        code=code,
        cause="cannot be read",
        remedy=remedy,
        since=None,
        job_id=None,
        remembered=True,
    )


def test_each_remedy_of_a_reason_is_shown_with_its_files(capsys: pytest.CaptureFixture[str]):
    some = [failed(f"a{number}.pdf", "Install A.") for number in range(4)]
    some += [failed("b.pdf", "Install B."), failed("c.pdf", "Save it again.", "ERR_PARSE")]
    print_reasons("/docs", some)
    assert capsys.readouterr().out.splitlines() == [
        "  ERR_COMPONENT_MISSING, 5 files:",
        "    4 files: Install A.",
        "      a0.pdf: cannot be read",
        "      a1.pdf: cannot be read",
        "      a2.pdf: cannot be read",
        "      and 1 more",
        "    1 file: Install B.",
        "      b.pdf: cannot be read",
        "  ERR_PARSE, 1 file: Save it again.",
        "    c.pdf: cannot be read",
    ]

    print_reasons("/docs", [failed(f"{number}.pdf", f"Install {number}.") for number in range(5)])
    assert "    and 2 files with 2 other remedies" == capsys.readouterr().out.splitlines()[-1]


def test_a_missing_language_is_a_remedy_of_its_own_and_recognized_pages_stand_before_the_table(
    run: Run, ask: Ask, mailed: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = mailed.parent / "docs"
    folder.mkdir()
    for name in ("a.pdf", "b.pdf"):
        (folder / name).write_bytes(scan(f"The mill {name}"))
    (folder / "a.md").write_text("# Mill")
    (folder / "a.txt").write_text("Mill")
    monkeypatch.setenv("PENSTOCK_OCR_LANGUAGES", "qqa+qqb")

    shown = run("index", str(folder), code=1).stdout

    remedy = (
        "Put qqa.traineddata, qqb.traineddata of the Tesseract project into a folder, and set "
        "PENSTOCK_OCR_TESSDATA_DIR to it. Then run `penstock index` again."
    )
    assert f"\n  ERR_COMPONENT_MISSING, 2 files: {remedy}\n" in shown
    assert "a.pdf: its page could not be read: the OCR models of languages 'qqa', 'qqb' are not inst" in shown
    reason = ask("why", str(folder / "a.pdf"))
    assert (remedy, False) == (reason["remedy"], "Remedy" in reason["cause"])

    monkeypatch.setenv("PENSTOCK_OCR_LANGUAGES", "eng")
    lines = run("index", str(folder)).stdout.splitlines()
    assert lines[1].startswith("Text of 2 pages recognized, mean confidence ")
    assert ["", "type"] == [lines[2], lines[3].split()[0]]
