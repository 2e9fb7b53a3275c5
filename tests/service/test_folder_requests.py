"""Requests for folders: whether code is included where the request does not say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Penstock

IN_GIT = "the folder is in a git repository"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    with Penstock("memory://", state_dir=tmp_path / "state") as app:
        yield app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "above" / "docs"
    made.mkdir(parents=True)
    (made / "tool.py").write_text("print('mill')")
    (made / "mill.md").write_text("Water drives the wheel.")
    return made


def repository(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


def repository_above(folder: Path) -> None:
    repository(folder.parent)


def files(*names: str) -> Callable[[Path], object]:
    return lambda folder: [(folder / name).write_text("") for name in names]


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        (repository, IN_GIT),
        (repository_above, IN_GIT),
        (files("pyproject.toml"), "the folder has the file pyproject.toml"),
        (files("package.json"), "the folder has the file package.json"),
        (files("Cargo.toml"), "the folder has the file Cargo.toml"),
        (files("go.mod"), "the folder has the file go.mod"),
        (files("mill.csproj"), "the folder has the file mill.csproj"),
        (files("b.sln", "a.sln"), "the folder has the file a.sln"),
        (files("a.sln", "go.mod"), "the folder has the file go.mod"),
        (files("Makefile"), None),
        (files("cabal"), None),
        (lambda folder: files("pyproject.toml")(folder.parent), None),
        (lambda folder: (folder / "go.mod").mkdir(), None),
        (lambda folder: (folder / ".git").mkdir(), None),
    ],
)
def test_code_of_a_source_tree_is_included(
    app: Penstock, folder: Path, mark: Callable[[Path], object], reason: str | None
):
    mark(folder)
    assert reason == app.documents.why_code(folder)
    submission = app.documents.submission(folder)
    # The top folder of a work tree is a project, which includes code without a word about it.
    included = submission["item_type"] == "project" or submission["payload"].get("include_code", False)
    assert (reason is not None) is included
    assert {True: 0, False: 1}[reason is not None] <= app.documents.preview(folder).skipped.get("code", 0)
    assert (reason is not None) is app.documents.preview(folder).include_code


@pytest.mark.parametrize("asked", [True, False])
def test_the_request_decides_where_it_says(app: Penstock, folder: Path, asked: bool):
    if not asked:
        repository(folder)
    assert None is app.documents.why_code(folder, include_code=asked)
    payload = app.documents.submission(folder, include_code=asked)["payload"]
    assert asked is payload.get("include_code", False)


def test_a_project_and_a_file_need_no_decision(app: Penstock, folder: Path):
    repository(folder)
    assert None is app.documents.why_code(folder, project=True)
    assert {"project_root": str(folder)} == app.documents.submission(folder, project=True)["payload"]
    assert None is app.documents.why_code(folder / "tool.py")
