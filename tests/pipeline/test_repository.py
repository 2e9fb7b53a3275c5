"""Branch, remote and tenant of a project, without git."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from penstock.pipeline.walk.repository import (
    DETACHED,
    branch_of,
    branches_of,
    find_repository,
    normalised_remote,
    project_name,
    remote_of,
    tenant_of,
)

CONFIG = """[core]
\tbare = false
[remote "upstream"]
\turl = https://example.org/their/mill.git
[Remote "origin"]
\tfetch = +refs/heads/*:refs/remotes/origin/*
\tURL = git@Example.org:ours/mill.git ; ours
[branch "main"]
\tremote = origin
\turl = not this
"""


def make(root: Path, head: str = "ref: refs/heads/main\n", config: str = CONFIG) -> Path:
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(head)
    (root / ".git" / "config").write_text(config)
    return root


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/ours/mill.git",
        "https://user:secret@Example.ORG:443/ours/mill",
        "ssh://git@example.org:22/ours/mill.git",
        "git@example.org:ours/mill.git",
        "example.org:ours/mill",
        "git://example.org/ours/mill.git/",
        " https://example.org//ours/mill.git/ ",
    ],
)
def test_every_spelling_of_a_remote_is_the_same_tenant(tmp_path: Path, url: str):
    make(tmp_path, config=f'[remote "origin"]\n url = {url}\n')

    assert "example.org/ours/mill" == normalised_remote(url)
    assert hashlib.sha256(b"example.org/ours/mill").hexdigest() == tenant_of(str(tmp_path))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/srv/git/mill.git", "/srv/git/mill"),
        ("file:///srv/git/mill.git", "/srv/git/mill"),
        ("../mill.git", "/../mill"),
        ("ssh://git@[::1]:2222/mill", "[::1]/mill"),
        ("https://example.org/With%20Space/Mill", "example.org/With Space/Mill"),
    ],
)
def test_other_remotes(url: str, expected: str):
    assert expected == normalised_remote(url)


def test_origin_goes_before_other_remotes(tmp_path: Path):
    repository = find_repository(str(make(tmp_path)))

    assert repository is not None
    assert "git@Example.org:ours/mill.git" == remote_of(repository)


def test_without_a_remote_the_path_is_the_tenant(tmp_path: Path):
    make(tmp_path / "one", config="[core]\n")
    make(tmp_path / "two", config="")
    (tmp_path / "one" / "docs").mkdir()
    (tmp_path / "plain").mkdir()

    tenants = [tenant_of(str(tmp_path / name)) for name in ("one", "two", "plain")]

    assert 3 == len(set(tenants))
    assert tenants[0] == tenant_of(str(tmp_path / "one" / "docs"))


@pytest.mark.parametrize(
    ("head", "branch"),
    [
        ("ref: refs/heads/main\n", "main"),
        ("ref: refs/heads/feature/über-x\n", "feature/über-x"),
        ("4b825dc642cb6eb9a060e54bf8d69288fbee4904\n", "detached-4b825dc642cb"),
        ("ref: refs/heads/a\x1b[31mb\n", "a%1B[31mb"),
        ("ref: refs/heads/" + 300 * "x", 187 * "x" + "-0d4e2ca9e9cb"),
        ("4b825dc6\n", DETACHED),
        ("ref: refs/heads/.invalid\n", DETACHED),
        ("", DETACHED),
    ],
)
def test_branch(tmp_path: Path, head: str, branch: str):
    repository = find_repository(str(make(tmp_path, head=head)))

    assert repository is not None
    assert branch == branch_of(repository)


def test_a_work_tree_has_its_own_branch_and_the_shared_remote(tmp_path: Path):
    main = make(tmp_path / "main")
    own = main / ".git" / "worktrees" / "side"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    (own / "commondir").write_text("../..\n")
    side = tmp_path / "side"
    side.mkdir()
    (side / ".git").write_text(f"gitdir: {own}\n")

    repository = find_repository(str(side))

    assert repository is not None
    assert "side" == branch_of(repository)
    assert tenant_of(str(main)) == tenant_of(str(side))


def test_a_file_called_git_that_names_nothing_is_no_repository(tmp_path: Path):
    (tmp_path / ".git").write_text("nonsense")

    assert find_repository(str(tmp_path)) is None


def test_branches_are_those_of_files_packed_refs_and_work_trees(tmp_path: Path):
    main = make(tmp_path / "main")
    git = main / ".git"
    (git / "refs" / "heads" / "feature").mkdir(parents=True)
    (git / "refs" / "heads" / "feature" / "gate").write_text("0" * 40)
    (git / "packed-refs").write_text(
        "# pack-refs with: peeled\n" + "0" * 40 + " refs/heads/weir\n" + "0" * 40 + " refs/tags/v1\n^junk\n"
    )
    own = git / "worktrees" / "side"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("4b825dc642cb6eb9a060e54bf8d69288fbee4904\n")
    repository = find_repository(str(main))

    assert repository is not None
    expected = frozenset(["main", "feature/gate", "weir", "detached-4b825dc642cb"])
    assert expected == branches_of(repository)


def test_branches_that_cannot_be_read_are_unknown_and_not_gone(tmp_path: Path):
    repository = find_repository(str(make(tmp_path)))
    assert repository is not None
    (tmp_path / ".git" / "reftable").mkdir()

    assert None is branches_of(repository)


def test_a_rebase_stays_on_its_branch(tmp_path: Path):
    repository = find_repository(str(make(tmp_path, head="4b825dc642cb6eb9a060e54bf8d69288fbee4904\n")))
    (tmp_path / ".git" / "rebase-merge").mkdir()
    (tmp_path / ".git" / "rebase-merge" / "head-name").write_text("refs/heads/weir\n")

    assert repository is not None
    assert "weir" == branch_of(repository)


@pytest.mark.parametrize(
    "content", ["gitdir: .git", "gitdir: /dev", "gitdir: " + 5000 * "x", "\0\xff", "gitdir:"]
)
def test_a_hostile_git_file_is_no_repository(tmp_path: Path, content: str):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".git").write_text(content)

    assert None is find_repository(str(tmp_path / "a"))


@pytest.mark.parametrize("name", ["config", "commondir", "packed-refs"])
def test_a_directory_in_place_of_a_git_file_is_an_empty_file(tmp_path: Path, name: str):
    top = make(tmp_path)
    (top / ".git" / name).unlink(missing_ok=True)
    (top / ".git" / name).mkdir()
    repository = find_repository(str(top))

    assert repository is not None
    assert "main" == branch_of(repository)
    assert (name == "config") == (remote_of(repository) is None)
    assert "main" in (branches_of(repository) or ())


def test_a_name_for_people_has_no_host_user_or_password():
    assert "ours/mill" == project_name("https://me:s3cret@example.org/ours/mill.git", "/src/x")
    assert "x" == project_name(None, "/src/x")
