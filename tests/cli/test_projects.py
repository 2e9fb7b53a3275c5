"""Projects and branches from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

Ask = Callable[..., Any]
REMOTE = "https://me:s3cret@example.org/ours/mill.git"


@pytest.fixture
def state(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    monkeypatch.setenv("PENSTOCK_SQLITE_SYNCHRONOUS", "NORMAL")
    return state


@pytest.fixture
def mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Path) -> Path:
    """A work tree on branch main, the current folder."""
    root = tmp_path / "mill"
    (root / ".git" / "refs" / "heads").mkdir(parents=True)
    (root / ".git" / "config").write_text(f'[remote "origin"]\n url = {REMOTE}\n')
    check_out(root, "main")
    (root / "weir.md").write_text("The weir holds back the water.")
    monkeypatch.chdir(root)
    return root


def check_out(root: Path, branch: str) -> None:
    (root / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    (root / ".git" / "refs" / "heads" / branch).write_text("0" * 40)


def paths(ask: Ask, *arguments: str) -> list[str]:
    hits = ask("search", *arguments)["hits"]
    return sorted(Path(hit["path"]).name for hit in hits if not hit["weak"])


def test_search_answers_by_the_branch_that_is_checked_out(run: Run, ask: Ask, mill: Path):
    assert "ours/mill (branch main)" == ask("index", "weir.md")["project"]
    check_out(mill, "wip")
    (mill / "gate.md").write_text("The gate opens to the wheel.")
    ask("index", "gate.md")

    assert ["gate.md"] == paths(ask, "gate")
    assert [] == paths(ask, "weir")
    assert ["weir.md"] == paths(ask, "weir", "--branch", "main")
    check_out(mill, "main")
    assert [] == paths(ask, "gate")
    assert ["weir.md"] == paths(ask, "weir")
    assert "indexed" == ask("why", "weir.md")["verdict"]
    assert [str(mill / "weir.md")] == [one["path"] for one in ask("documents", "list")["documents"]]


def test_outside_of_projects_a_search_is_of_the_default_tenant(
    run: Run, ask: Ask, mill: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ask("index", "weir.md")
    monkeypatch.chdir(tmp_path)

    assert [] == paths(ask, "weir")
    assert "1 project is indexed. Search everything with: --all" in run("search", "weir").stderr
    assert ["weir.md"] == paths(ask, "weir", "--all")
    for command in (("search", "weir"), ("context", "weir"), ("documents", "list")):
        refused = run(*command, "--project", code=4).stderr
        assert "the current folder is in no project that was indexed" in refused


def test_a_line_under_every_search_says_what_was_searched(
    run: Run, ask: Ask, mill: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ask("note", "Buy flour for the baker.")
    ask("index", "weir.md")
    every = "Search everything with: --all\n"

    for command in ("search", "context"):
        assert (
            f"Searched project ours/mill (branch main) and your notes. {every}" == run(command, "weir").stderr
        )
        assert "Searched everything: 2 tenants.\n" == run(command, "weir", "--all").stderr
        acme = f"Searched tenant acme. 1 project is indexed. {every}"
        assert acme == run(command, "weir", "--tenant", "acme").stderr
    assert "" == run("--quiet", "search", "weir").stderr
    found = ask("search", "weir")["covered"]
    assert [("ours/mill", "main", False), (None, None, True)] == [
        (part["project"], part["branch"], part["notes_only"]) for part in found["parts"]
    ]
    assert ask("context", "weir")["covered"] == found
    assert f"(branch main). {every}" in run("search", "weir", "--path", "*weir*").stderr
    check_out(mill, "wip")
    assert f"(branch wip) and your notes. {every}" in run("search", "zebra").stderr
    monkeypatch.chdir(tmp_path)
    assert f"Searched tenant default. 1 project is indexed. {every}" in run("search", "zebra").stderr


def test_why_looks_in_the_project_of_the_path_or_in_all_tenants(
    run: Run, ask: Ask, mill: Path, tmp_path: Path
):
    ask("index", "weir.md")
    barn = tmp_path / "barn.md"
    barn.write_text("Hay is kept dry.")
    ask("index", str(barn), "--tenant", "acme")

    assert "unknown" == ask("why", "weir.md", "--no-project")["verdict"]
    found = ask("why", str(barn))
    assert ("unknown", "not in tenant default, but in tenant acme, branch main") == (
        found["verdict"],
        found["cause"],
    )
    assert "indexed" == ask("why", str(barn), "--all")["verdict"]
    run("why", str(barn), "--all", "--tenant", "acme", code=2)


def test_a_note_is_found_inside_a_project_on_every_branch(ask: Ask, mill: Path):
    ask("note", "Buy flour for the baker.")
    ask("index", "weir.md")

    for branch in ("main", "wip"):
        check_out(mill, branch)
        assert ["note:"] == [hit["path"][:5] for hit in ask("search", "flour")["hits"] if not hit["weak"]]


def test_documents_indexed_without_a_project_are_found_in_the_same_folder(ask: Ask, mill: Path):
    answer = ask("index", "weir.md", "--no-project")

    assert None is answer["project"]
    assert ["weir.md"] == paths(ask, "weir")


def test_a_named_tenant_wins(ask: Ask, mill: Path):
    ask("index", "weir.md", "--tenant", "acme")

    assert ["weir.md"] == paths(ask, "weir", "--tenant", "acme")
    assert [] == paths(ask, "weir")


def test_a_remote_that_is_added_later_keeps_the_documents(ask: Ask, mill: Path):
    (mill / ".git" / "config").write_text("")
    ask("index", "weir.md")
    (mill / ".git" / "config").write_text(f'[remote "origin"]\n url = {REMOTE}\n')

    assert ["weir.md"] == paths(ask, "weir")
    assert 0 == ask("index", "weir.md")["counts"]["indexed"]


def test_people_read_names_and_never_the_password(run: Run, ask: Ask, mill: Path, state: Path):
    job = ask("index", "weir.md")["job_id"]
    shown = [
        run(*command).output
        for command in (
            ["status"],
            ["jobs"],
            ["jobs", job],
            ["documents", "show", "weir.md"],
            ["project", "list"],
            ["project", "show"],
        )
    ]

    assert all("ours/mill" in text for text in shown)
    tenant = ask("project", "show")["tenant_id"]
    assert all(tenant not in text for text in shown[:-1])
    everything = b"".join(file.read_bytes() for file in state.rglob("*") if file.is_file())
    assert b"s3cret" not in everything


def test_prune_forgets_branches_that_the_repository_no_longer_has(run: Run, ask: Ask, mill: Path):
    ask("index", "weir.md")
    check_out(mill, "wip")
    ask("index", "weir.md")
    check_out(mill, "main")
    assert "Every indexed branch exists." in run("project", "prune").output
    (mill / ".git" / "refs" / "heads" / "wip").unlink()

    planned = ask("project", "prune", "--dry-run")
    assert [["wip"]] == [[one["branch"] for one in each["branches"]] for each in planned["projects"]]
    assert ["weir.md"] == paths(ask, "weir", "--branch", "wip")
    run("project", "prune", code=1, stdin="n\n")
    ask("project", "prune", "--yes")

    assert [] == paths(ask, "weir", "--branch", "wip")
    assert ["weir.md"] == paths(ask, "weir")
    assert ["main"] == [one["branch"] for one in ask("project", "show")["branches"]]


def test_prune_removes_nothing_of_a_project_whose_folder_is_not_here(ask: Ask, run: Run, mill: Path):
    ask("index", "weir.md")
    mill.rename(mill.with_name("moved"))

    answer = ask("project", "prune", "--yes")

    assert [[]] == [each["branches"] for each in answer["projects"]]
    assert f"the branches of {mill} cannot be read here" == answer["projects"][0]["kept_because"]
    run("project", "prune", "nobody", code=4)


def test_a_moved_project_keeps_its_tenant_and_its_documents(
    ask: Ask, mill: Path, monkeypatch: pytest.MonkeyPatch
):
    (mill / ".git" / "config").write_text("")
    ask("index", ".")
    before = ask("project", "show")["tenant_id"]
    moved = mill.with_name("moved")
    monkeypatch.chdir(mill.parent)
    mill.rename(moved)
    ask("project", "move", str(mill), str(moved))
    monkeypatch.chdir(moved)
    counts = ask("index", ".")["counts"]

    assert (1, 0) == (counts["moved"], counts["added"])
    assert before == ask("project", "show")["tenant_id"]
    assert ["weir.md"] == paths(ask, "weir")


def test_a_job_for_another_branch_than_the_checked_out_one_changes_nothing(ask: Ask, run: Run, mill: Path):
    ask("index", "weir.md")
    (mill / "weir.md").write_text("The weir was rebuilt.")
    job = ask("index", "weir.md", "--no-wait")["job_id"]
    check_out(mill, "wip")
    run("worker", "--until-idle", "--processes", "1")

    result = json.loads(run("--json", "jobs", job).stdout)["result"]
    assert f"branch main is not checked out in {mill}" == result["note"]
    assert ["weir.md"] == paths(ask, "holds", "back", "--branch", "main")


def test_a_request_for_a_folder_tells_of_its_documents_outside_of_the_project(run: Run, ask: Ask, mill: Path):
    ask("index", ".", "--no-project")

    shown = " ".join(run("index", ".").stderr.split())
    assert f"Note: documents below {mill} are also in tenant default, branch main" in shown
    assert shown.endswith(f"Remove them: penstock delete {mill} --tenant default --collection default")
    run("delete", str(mill), "--tenant", "default", "--collection", "default")
    assert "Note:" not in run("index", ".").stderr
    assert ["weir.md"] == paths(ask, "weir")


def test_a_schedule_of_a_project_is_shown_with_its_name(run: Run, mill: Path):
    run("schedule", "add", "@daily", "index", ".")

    assert "Tenant       ours/mill\n" in run("schedule", "show", "index-mill").stdout
    run("schedule", "add", "@daily", "call", "f", "--project", code=2)


def test_collections_of_a_project_are_shown_by_its_name(run: Run, mill: Path):
    run("index", "weir.md")
    for words in (("collection", "list"), ("collection", "show", "default")):
        shown = run(*words).output
        assert "ours/mill" in shown
    assert "Project" in shown


def test_a_collection_that_is_missing_names_the_project(run: Run, ask: Ask, mill: Path):
    ask("index", "weir.md")

    for command in (["show", "mil"], ["clear", "mil", "--yes"]):
        assert "project 'ours/mill' has no collection 'mil'" in run("collection", *command, code=4).stderr
    told = run("collection", "show", "mil", "--tenant", "ada", code=4).stderr
    assert "tenant 'ada' has no collection 'mil'" in told
