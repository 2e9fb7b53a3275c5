"""Ignore patterns have the same meaning as for git."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.pipeline.walk.ignore import FoundFile, PatternList, WalkRules
from penstock.pipeline.walk.walker import walk

NAMES = ["a", "b", "c", "ab", "abc", "aab", "build", "a.md", "b.md", "ab.txt", "c.txt", "a b", "a]", "a[b"]
NAMES += ["!a", "#a", "a-b.md", "Z.md", "3.md", "a\\b"]
PIECES = [
    "a",
    "b",
    "c",
    "*",
    "*",
    "?",
    "[ab]",
    "[!a]",
    "[^b-z]",
    "[]a]",
    "[a-c]",
    "\\a",
    "\\*",
    ".md",
    ".txt",
]
PIECES += ["ab", "[[:alpha:]]", "[[:digit:]A]", "[z-a]", "[a\\]]", "[a-", "-", "\\!", "\\#", "build"]
GIT = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def pattern(rng: random.Random) -> str:
    def segment() -> str:
        glob = "".join(rng.choices(PIECES, k=rng.choice([1, 1, 1, 2, 2, 3])))
        return rng.choice([glob, glob, rng.choice(NAMES), "**", "*"])

    segments = [segment() for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]
    # A pattern that ends in /** excludes the folder as well, and ignore files in it are not read.
    if segments[-1] == "**":
        segments[-1] = "*"
    end = rng.choice(["", "", "", "/", "/*", " ", "\\ ", "  ", "\r", "\t"])
    return rng.choice(["", "", "", "!"]) + rng.choice(["", "", "", "/", "**/"]) + "/".join(segments) + end


def make_tree(rng: random.Random, root: Path) -> None:
    folders = [root]
    for _ in range(8):
        folders.append(rng.choice(folders) / rng.choice(NAMES[:7]))
        folders[-1].mkdir(exist_ok=True)
    for _ in range(30):
        place = rng.choice(folders) / rng.choice(NAMES)
        if not place.exists():
            place.write_text("x")
    for folder in rng.sample(folders, 3):
        (folder / ".gitignore").write_text("\n".join(pattern(rng) for _ in range(rng.randint(1, 6))))


@pytest.mark.skipif(shutil.which("git") is None, reason="git tells what its patterns mean")
@pytest.mark.parametrize("seed", range(25))
def test_a_walk_finds_what_git_does_not_ignore(tmp_path: Path, seed: int):
    subprocess.run(["git", "init", "-q", str(tmp_path)], env=GIT, check=True)
    make_tree(random.Random(seed), tmp_path)

    listed = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard", "-z"],
        cwd=tmp_path,
        env=GIT,
        check=True,
        capture_output=True,
    )
    expected = {path for path in listed.stdout.decode().split("\0") if path and ".gitignore" not in path}
    reports = walk(str(tmp_path), WalkRules(hidden=True))
    found = {report.path for report in reports if isinstance(report, FoundFile)}
    assert expected == {path for path in found if ".gitignore" not in path}


@pytest.mark.parametrize(
    ("lines", "path", "expected"),
    [
        (["*a*a*a*b"], "aaab", True),
        (["*a*a*a*b"], "aab", False),
        (["*" + "a*" * 5_000 + "b"], "a" * 200, False),
        (["**/a/**/b"], "x/a/b", True),
        (["**/a/**/b"], "a/x/y/b", True),
        (["a/**/b"], "a/b", True),
        (["a/**"], "a/b/c", True),
        (["build/**"], "build/", True),
        (["build/**", "!build/keep.md"], "build/", False),
        (["build/**", "!build/keep.md"], "build/keep.md", False),
        (["*", "!*/", "!*.md"], "docs/", False),
        (["*", "!*/", "!*.md"], "docs/a.md", False),
        (["*", "!*/", "!*.md"], "docs/a.txt", True),
        (["docs/"], "docs/a.md", True),
        (["docs/"], "docs", False),
        (["[z-a]"], "z", True),
        (["[a"], "[a", False),
        (["a\\"], "a\\", False),
        (["[[:nothing:]]"], "a", False),
        (["a[b/c]d"], "abd", True),
        (["/a"], "b/a", False),
        (["\ufeffa"], "a", False),
    ],
)
def test_the_last_pattern_that_matches_decides(lines: list[str], path: str, expected: bool):
    assert expected == PatternList(lines).matches(path)


def test_a_long_list_is_looked_up_and_its_order_counts():
    names = PatternList([*(f"name{number}" for number in range(20_000)), "!name7", "*.log", "!keep.log"])

    assert [True, False, True, False] == [
        names.matches(path) for path in ("a/name19999", "a/name7", "a/x.log", "a/keep.log")
    ]


def test_an_ignore_file_longer_than_the_limit_is_said_to_be(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / ".penstockignore").write_bytes(b"a.md\n" + b"#" * (16 * 1024 * 1024) + b"\nb.md\n")
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "b.md").write_text("x")

    found = [report.path for report in walk(str(tmp_path)) if isinstance(report, FoundFile)]

    assert ["b.md"] == found
    assert ".penstockignore: only the patterns in the first 16,777,216 bytes are used" in caplog.text
