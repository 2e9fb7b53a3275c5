"""``penstock rename``, ``delete``, ``delete-tenant`` and ``verify``, without a worker running."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import UnknownDocument
from tests.cli.conftest import Run, index


@pytest.fixture
def folder(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files, indexed."""
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    below = tmp_path / "files"
    (below / "deep").mkdir(parents=True)
    for name in ("mill.md", "oven.md", "deep/gate.md"):
        (below / name).write_text(f"Words of {name}.\n")
    index(state, below)
    return below


def paths(ask: Callable[..., Any], folder: Path) -> list[str]:
    found = ask("documents", "list")["documents"]
    return sorted(document["path"].removeprefix(f"{folder}/") for document in found)


def test_an_index_that_matches_says_so(run: Run, folder: Path):
    assert "Everything matches.\n" == run("verify").stdout


def test_every_difference_is_listed_and_fixed(run: Run, ask: Callable[..., Any], folder: Path):
    (folder / "mill.md").unlink()
    (folder / "oven.md").write_text("Other words.\n")

    told = run("verify", code=1).stdout
    assert "is indexed, but not on the disk" in told
    assert "has changed since it was indexed" in told
    assert 2 == len(ask("verify", "--fix")["queued"])
    run("worker", "--until-idle")

    assert {"differences": [], "repaired": 0, "queued": [], "unreadable": []} == ask("verify")
    assert ["deep/gate.md", "oven.md"] == paths(ask, folder)


def test_what_is_away_with_its_disk_is_left_alone_and_said_to_be(
    run: Run, ask: Callable[..., Any], folder: Path
):
    folder.rename(folder.with_name("unmounted"))
    folder.mkdir()

    told = run("verify", "--fix").stdout

    assert f"3 left alone: {folder} is empty" in told
    assert "penstock delete PATH" in told
    assert [] == ask("verify", "--fix")["queued"]
    assert 3 == len(paths(ask, folder))


def test_contents_are_compared_when_asked(run: Run, ask: Callable[..., Any], folder: Path):
    path = folder / "mill.md"
    times = path.stat()
    path.write_text("Works of mill.md"[: times.st_size - 1].ljust(times.st_size - 1) + "\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert "Everything matches.\n" == run("verify").stdout
    assert "has changed content" in run("verify", "--checksum", code=1).stdout
    assert 1 == len(ask("verify", "--checksum", "--fix")["queued"])
    run("worker", "--until-idle")
    assert "Everything matches.\n" == run("verify", "--checksum").stdout


def test_a_repair_is_queued_whole_however_small_the_queue(
    run: Run, ask: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PENSTOCK_MAX_QUEUE", "1")
    (folder / "mill.md").write_text("Other words.\n")
    (folder / "oven.md").write_text("Other words.\n")

    told = run("verify", "--fix").stdout

    assert "2 jobs queued" in told
    assert "penstock worker" in told
    run("worker", "--until-idle")
    assert [] == ask("verify")["differences"]


def test_a_rename_keeps_the_document(run: Run, ask: Callable[..., Any], folder: Path):
    (folder / "deep").rename(folder / "far")

    assert "renamed: 1 document\n" == run("rename", str(folder / "deep"), str(folder / "far")).stdout

    assert ["far/gate.md", "mill.md", "oven.md"] == paths(ask, folder)


def test_a_rename_of_a_path_that_is_not_in_the_index_is_refused(
    run: Run, ask: Callable[..., Any], folder: Path
):
    before = ask("jobs")
    known, unknown, new = str(folder / "mill.md"), str(folder / "nobody.md"), str(folder / "wheel.md")

    refused = run("rename", unknown, new, code=4).stderr
    assert f"{unknown} cannot be renamed: no such file" in refused
    refused = run("rename", known, new, "--collection", "other", code=4).stderr
    assert (
        "not in collection other, but in default (ERR_UNKNOWN_DOCUMENT). Add --collection default." in refused
    )
    assert "ERR_UNKNOWN_DOCUMENT" in run("rename", known, new, "--tenant", "acme", code=4).stderr
    assert before == ask("jobs")
    assert "nothing was renamed" in run("rename", known, new).stdout


def test_why_names_the_collections_that_have_the_path(ask: Callable[..., Any], folder: Path):
    for path in (folder, folder / "mill.md"):
        reason = ask("why", str(path), "--collection", "other")
        assert ("unknown", "not in collection other, but in default", "Add --collection default.") == (
            reason["verdict"],
            reason["cause"],
            reason["remedy"],
        )
    # Documents of other tenants are not told of.
    assert "never seen by any job" == ask("why", str(folder / "mill.md"), "--tenant", "acme")["cause"]
    missing = ask("why", str(folder / "nobody.md"))
    assert ("unknown", "Check the path.") == (missing["verdict"], missing["remedy"])


def test_a_rename_to_where_no_walk_looks_says_why_the_document_goes(
    run: Run, ask: Callable[..., Any], folder: Path
):
    (folder / "deep").rename(folder / ".deep")

    told = run("rename", str(folder / "deep"), str(folder / ".deep")).stdout

    assert f"removed: 1 document ({folder}/.deep: its name begins with a dot)\n" == told
    assert ["mill.md", "oven.md"] == paths(ask, folder)


def test_documents_and_folders_are_forgotten_and_stay_on_the_disk(
    run: Run, ask: Callable[..., Any], folder: Path
):
    assert "removed: 1 document\n" == run("delete", str(folder / "mill.md")).stdout
    assert {"outcome": "removed", "removed": 1} == ask("delete", str(folder / "deep"))["result"]

    assert ["oven.md"] == paths(ask, folder)
    assert (folder / "mill.md").exists()


def test_a_document_that_is_not_there_is_refused_and_nothing_queued(
    run: Run, ask: Callable[..., Any], folder: Path
):
    before = ask("jobs")
    for unknown in ("nobody", str(folder / "nobody.md")):
        refused = run("delete", unknown, code=4)
        shown = run("documents", "show", unknown, code=4)
        assert (refused.stderr, "") == (shown.stderr, refused.stdout)
        assert "ERR_UNKNOWN_DOCUMENT" in refused.stderr
    run("delete", str(folder / "mill.md"))
    run("delete", str(folder / "mill.md"), code=4)

    assert 1 == len(ask("jobs")["jobs"]) - len(before["jobs"])


def test_a_document_that_a_queued_job_may_make_can_be_forgotten(folder: Path, app: Penstock):
    new, other = str(folder / "deep" / "new.md"), str(folder / "nobody.md")
    app.submit(item_type="file", op="ingest", payload={"file_path": new})

    assert {"document_id": new} == app.documents.removal(new)["payload"]
    with pytest.raises(UnknownDocument):
        app.documents.removal(other)
    app.submit(item_type="rename", op="update", payload={"old_path": new, "new_path": other})
    assert {"document_id": other} == app.documents.removal(other)["payload"]


def test_a_folder_that_is_gone_from_the_disk_can_be_forgotten(
    run: Run, ask: Callable[..., Any], folder: Path
):
    shutil.rmtree(folder)

    assert "removed: 1 document\n" == run("delete", str(folder / "deep")).stdout
    assert "removed: 2 documents\n" == run("delete", str(folder)).stdout

    assert [] == paths(ask, folder)


def test_a_path_through_a_link_means_what_it_leads_to(
    run: Run, ask: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    link = folder.parent / "link"
    link.symlink_to(folder)
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "static")
    assert 3 == ask("rebuild", str(link), "--dry-run")["plan"]["total"]["documents"]
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    (folder / "mill.md").rename(folder / "wheel.md")

    run("rename", str(link / "mill.md"), str(link / "wheel.md"))
    assert ["deep/gate.md", "oven.md", "wheel.md"] == paths(ask, folder)
    assert "removed: 1 document\n" == run("delete", str(link / "oven.md")).stdout
    assert "removed: 2 documents\n" == run("delete", str(link)).stdout

    assert [] == paths(ask, folder)


@pytest.mark.parametrize("command", [["delete", ""], ["index", ""], ["rename", "", "x"], ["rebuild", ""]])
def test_an_empty_path_is_not_the_current_directory(
    run: Run, ask: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
):
    monkeypatch.chdir(folder)

    assert "ERR_PATH_NOT_FOUND" in run(*command, code=1).stderr

    assert 3 == len(paths(ask, folder))


def test_a_tenant_is_forgotten_only_after_a_yes(run: Run, ask: Callable[..., Any], folder: Path):
    # Without a terminal there is no question, whatever there is to read.
    refused = run("delete-tenant", "default", stdin="y\n", code=1)
    assert ("", 1) == (refused.stdout, refused.stderr.count("\n"))
    assert "Add --yes." in refused.stderr
    assert 3 == len(paths(ask, folder))

    run("delete-tenant", "default", "--yes")
    assert [] == paths(ask, folder)


def test_no_name_speaks_to_the_terminal(run: Run, tmp_path: Path, folder: Path):
    evil = tmp_path / "red\x1b[31m"
    evil.mkdir()
    (evil / "good.md").write_text("Words.\n")
    (evil / "bad\x1b[31m.md").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\0")

    told = [
        run("index", str(evil), code=1).output,
        run("documents", "tree", str(evil / "good.md")).output,
        run("delete", str(evil / "nobody"), code=4).output,
        run("delete-tenant", evil.name, "--yes", code=1).output,
    ]

    assert ["\\x1b[31m" in text and "\x1b[31m" not in text for text in told] == [True] * 4
