"""The rules of a walk, on real directories."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pipeline.walk.ignore import (
    FoundFile,
    Repository,
    Rule,
    Skipped,
    Unreadable,
    WalkRules,
    rule_of_name,
)
from penstock.pipeline.walk.no_links import BehindLink
from penstock.pipeline.walk.walker import MOST_OPEN, walk


def put(root: Path, *paths: str, text: str = "words\n") -> None:
    for path in paths:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def found(root: Path, rules: WalkRules | None = None, **options: str) -> list[str]:
    return [report.path for report in walk(str(root), rules, **options) if isinstance(report, FoundFile)]


def skipped(root: Path, rules: WalkRules | None = None) -> dict[str, Rule]:
    return {report.path: report.rule for report in walk(str(root), rules) if isinstance(report, Skipped)}


@pytest.fixture
def removed(tmp_path: Path) -> Iterator[Path]:
    """Remove a deep tree without recursion, unlike pytest."""
    place = tmp_path / "removed"
    place.mkdir()
    yield place
    subprocess.run(["rm", "-rf", str(place)], check=True)


def test_files_come_in_order_with_size_and_time(tmp_path: Path):
    put(tmp_path, "b.md", "a/z.md", "a-b.md", "a/b/c.md")
    os.utime(tmp_path / "b.md", ns=(1, 1_500_000_000_000_000_001))

    reports = list(walk(str(tmp_path)))

    assert ["a-b.md", "a/b/c.md", "a/z.md", "b.md"] == [report.path for report in reports]
    assert FoundFile("b.md", 6, 1_500_000_000_000_000_001) == reports[-1]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (".hidden.md", Rule.HIDDEN),
        ("sound.MP3", Rule.BINARY),
        ("lib.so", Rule.BINARY),
        ("sheet.xlsb", Rule.UNSUPPORTED),
        ("id_rsa", Rule.SECRET),
        ("server.pem", Rule.SECRET),
        (".env", Rule.SECRET),
        ("penstock.toml", Rule.SECRET),
        ("big.html", Rule.TOO_LARGE),
    ],
)
def test_a_file_left_out_says_why(tmp_path: Path, name: str, rule: Rule):
    put(tmp_path, "kept.md")
    put(tmp_path, name, text="x" * 200)

    assert {name: rule} == skipped(tmp_path, WalkRules(max_bytes=100))
    assert ["kept.md"] == found(tmp_path, WalkRules(max_bytes=100))
    assert rule.meaning


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (".venv", Rule.HIDDEN),
        (".git", Rule.REPOSITORY),
        (".penstock", Rule.STATE),
        ("node_modules", Rule.GENERATED),
        ("__pycache__", Rule.GENERATED),
        ("state", Rule.STATE),
    ],
)
def test_nothing_below_a_directory_left_out_is_reported(tmp_path: Path, name: str, rule: Rule):
    put(tmp_path, f"{name}/x.md", f"{name}/deeper/y.md", "kept.md")

    rules = WalkRules(state_dirs=(str(tmp_path / "state"),))
    assert [FoundFile, Skipped] == sorted({type(report) for report in walk(str(tmp_path), rules)}, key=str)
    assert {name: rule} == skipped(tmp_path, rules)


def test_a_python_environment_is_known_by_its_mark(tmp_path: Path):
    put(tmp_path, "env/pyvenv.cfg", "env/lib/x.py", "kept.py")

    assert ["kept.py"] == found(tmp_path)
    assert {"env": Rule.GENERATED} == skipped(tmp_path)


def test_hidden_files_on_request_but_never_the_inside_of_git(tmp_path: Path):
    put(tmp_path, ".github/ci.yml", ".git/config", ".editorconfig", ".penstock/x.md")

    assert [".editorconfig", ".github/ci.yml"] == found(tmp_path, WalkRules(hidden=True))


def test_ignore_files_hold_at_every_level_and_the_nearest_decides(tmp_path: Path):
    put(tmp_path, ".gitignore", text="build/\n*.log\n!keep/important.log\nsecret*\n/only_root.txt\n")
    put(tmp_path, "keep/.gitignore", text="b.py\n!secret.md\n")
    put(tmp_path, "keep/a.py", "keep/b.py", "keep/important.log", "keep/secret.md", "keep/x.log")
    put(tmp_path, "src/only_root.txt", "only_root.txt", "build/out.txt", "src/build/out.txt", "README.md")

    assert ["README.md", "keep/a.py", "keep/important.log", "keep/secret.md", "src/only_root.txt"] == found(
        tmp_path
    )
    by_git = skipped(tmp_path)
    assert {Rule.GITIGNORE} == {by_git[path] for path in ("build", "src/build", "keep/b.py", "only_root.txt")}
    details = {report.path: report.detail for report in walk(str(tmp_path)) if isinstance(report, Skipped)}
    assert "keep/.gitignore: b.py" == details["keep/b.py"]


def test_penstockignore_goes_before_gitignore(tmp_path: Path):
    put(tmp_path, ".gitignore", text="generated/*\n")
    put(tmp_path, ".penstockignore", text="drafts/\n!generated/api.md\n")
    put(tmp_path, "drafts/a.md", "generated/api.md", "generated/x.md")

    assert ["generated/api.md"] == found(tmp_path)
    assert Rule.PENSTOCKIGNORE is skipped(tmp_path)["drafts"]
    assert ["generated/api.md", "generated/x.md"] == found(tmp_path, WalkRules(use_gitignore=False))


def test_a_long_pattern_is_not_repeated_in_full_for_every_path(tmp_path: Path):
    """A pattern may have megabytes, and a folder many paths."""
    put(tmp_path, *(f"{number}.md" for number in range(3)))
    put(tmp_path, ".gitignore", text="*" * 100_000)

    details = [report.detail for report in walk(str(tmp_path)) if isinstance(report, Skipped)]

    shown = f".gitignore: {'*' * 200}…"
    assert [shown] * 3 == [detail for detail in details if detail.startswith(".gitignore")]


def test_ignore_files_above_the_root_count_up_to_the_repository(tmp_path: Path):
    put(tmp_path, ".gitignore", text="*.md\n")
    put(tmp_path, "repo/.git/HEAD", text="ref: refs/heads/main\n")
    put(tmp_path, "repo/.git/info/exclude", text="*.tmp.txt\n")
    put(tmp_path, "repo/.gitignore", text="/docs/private/\n*.bak.txt\n")
    put(tmp_path, "repo/docs/a.md", "repo/docs/private/b.md", "repo/docs/c.bak.txt", "repo/docs/d.tmp.txt")

    assert ["a.md"] == found(tmp_path / "repo" / "docs")
    assert ["docs/a.md"] == found(tmp_path / "repo")


def test_broken_patterns_are_passed_over(tmp_path: Path):
    put(tmp_path, ".gitignore", text="[a\n\\\n!\n# note\nx.md\n")
    put(tmp_path, "x.md", "y.md")

    assert ["y.md"] == found(tmp_path)


def test_include_and_exclude(tmp_path: Path):
    put(tmp_path, "a.md", "a.txt", "sub/b.md", "old/c.md")

    rules = WalkRules(include=("*.md",), exclude=("old/",))

    assert ["a.md", "sub/b.md"] == found(tmp_path, rules)
    assert {"a.txt": Rule.NOT_INCLUDED, "old": Rule.EXCLUDED} == skipped(tmp_path, rules)


def test_code_can_be_left_out(tmp_path: Path):
    put(tmp_path, "a.md", "a.py", "Makefile", "conf.yaml")

    assert ["a.md", "conf.yaml"] == found(tmp_path, WalkRules(include_code=False))
    assert {"a.py": Rule.CODE, "Makefile": Rule.CODE} == skipped(tmp_path, WalkRules(include_code=False))


@pytest.mark.parametrize(("depth", "expected"), [(1, ["a.md"]), (2, ["a.md", "s/b.md"]), (None, 3)])
def test_depth(tmp_path: Path, depth: int | None, expected: list[str] | int):
    put(tmp_path, "a.md", "s/b.md", "s/t/c.md")

    paths = found(tmp_path, WalkRules(max_depth=depth))

    assert expected in (paths, len(paths))


def test_no_link_is_followed_and_each_says_where_it_leads(tmp_path: Path):
    root = tmp_path / "root"
    put(root, "real/a.md")
    put(tmp_path, "outside.md")
    for link, target in {
        "loop": "loop",
        "self": ".",
        "again.md": "real/a.md",
        "again": "real",
        "out.md": str(tmp_path / "outside.md"),
        "up": "..",
        "dangling": "nowhere",
    }.items():
        (root / link).symlink_to(target)

    assert ["real/a.md"] == found(root)
    assert {
        "again": Rule.LINK_REPEATED,
        "again.md": Rule.LINK_REPEATED,
        "dangling": Rule.LINK_BROKEN,
        "loop": Rule.LINK_BROKEN,
        "out.md": Rule.LINK_OUTSIDE,
        "self": Rule.LINK_REPEATED,
        "up": Rule.LINK_OUTSIDE,
    } == skipped(root)


@pytest.mark.parametrize("name", [".gitignore", ".penstockignore", ".git/info/exclude", ".git/info", ".git"])
def test_ignore_files_behind_links_are_not_read(tmp_path: Path, name: str):
    put(tmp_path / "outside", "info/exclude", text="secret-*.txt\n")
    put(tmp_path / "root", "secret-of-the-mill.txt")
    put(tmp_path / "outside", "HEAD")
    target = {".git": "", ".git/info": "info"}.get(name, "info/exclude")
    link = tmp_path / "root" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "outside" / target)

    assert ["secret-of-the-mill.txt"] == found(tmp_path / "root")


@pytest.mark.parametrize("root", ["link", "link/inner"])
def test_a_root_behind_a_link_is_not_listed(tmp_path: Path, root: str):
    put(tmp_path, "real/inner/a.md")
    (tmp_path / "link").symlink_to("real")

    with pytest.raises(BehindLink):
        found(tmp_path / root)


@pytest.mark.parametrize("swapped", ["", "inner", "inner/deep"])
def test_a_folder_replaced_by_a_link_during_the_walk_leads_nowhere(tmp_path: Path, swapped: str):
    put(tmp_path, "root/a.md", "root/inner/b.md", "root/inner/deep/c.md", "root/z.md", "root/zz/y.md")
    put(tmp_path, "secret/a.md", "secret/b.md", "secret/c.md", "secret/y.md", "secret/of-others.md")
    put(tmp_path, "secret/.gitignore", text="named-*.txt\n")
    reports = walk(str(tmp_path / "root"))
    seen = [next(reports)]

    (tmp_path / "root" / swapped).rename(tmp_path / "away")
    (tmp_path / "root" / swapped).symlink_to(tmp_path / "secret")
    seen += reports

    assert {"a.md", "inner/b.md", "inner/deep/c.md", "z.md", "zz/y.md"} >= {
        report.path for report in seen if isinstance(report, FoundFile)
    }
    assert {"a.md", "zz/y.md"} <= {report.path for report in seen if isinstance(report, FoundFile)}
    assert "of-others" not in str(seen)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_deep_tree_is_walked_with_few_open_directories(tmp_path: Path):
    deep = tmp_path / "root"
    for level in range(3 * MOST_OPEN):
        deep /= f"d{level}"
        (deep / "zz").mkdir(parents=True)
        (deep / "zz" / "last.md").touch()
    open_before = open_files()
    most = 0

    for _ in (reports := walk(str(tmp_path / "root"))):
        most = max(most, open_files() - open_before)

    assert MOST_OPEN <= most <= MOST_OPEN + 5
    assert 3 * MOST_OPEN == len(found(tmp_path / "root"))
    assert [] == list(reports)
    assert open_before == open_files()


def test_a_walk_that_is_dropped_closes_its_directories(tmp_path: Path):
    put(tmp_path, "a/b/c.md", "a/b/d.md")
    open_before = open_files()
    reports = walk(str(tmp_path))
    next(reports)

    del reports

    assert open_before == open_files()


def test_pipes_and_sockets_are_never_opened(tmp_path: Path):
    put(tmp_path, "a.md")
    os.mkfifo(tmp_path / "pipe.md")
    os.mkfifo(tmp_path / ".gitignore")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.md"))

        assert ["a.md"] == found(tmp_path)
        assert {"pipe.md", "socket.md", ".gitignore"} == set(skipped(tmp_path))


@pytest.mark.parametrize("name", [".gitignore", ".penstockignore", ".git/info/exclude"])
def test_a_directory_with_the_name_of_an_ignore_file_excludes_nothing(tmp_path: Path, name: str):
    put(tmp_path, "a.md")
    (tmp_path / name).mkdir(parents=True)
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)

    assert ["a.md"] == found(tmp_path)
    os.close(still_free := os.open(tmp_path, os.O_RDONLY))
    assert free == still_free, "a descriptor stayed open"


def test_a_name_that_is_not_utf8_is_shown_escaped(tmp_path: Path):
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.md"))).write_text("x")
    put(tmp_path, "gut-ü.md", "new\nline.md")

    assert ["gut-ü.md", "new\nline.md"] == found(tmp_path)
    assert {"bad\\xff.md": Rule.NAME} == skipped(tmp_path)


def test_what_cannot_be_listed_is_reported_as_such(removed: Path):
    """A directory beyond the longest path cannot be listed, even by root."""
    put(removed, "a.md")
    here = Path.cwd()
    os.chdir(removed)
    try:
        for _ in range(25):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
    finally:
        os.chdir(here)

    reports = [report for report in walk(str(removed)) if isinstance(report, Unreadable)]

    assert ["ERR_BAD_PATH"] == [report.code for report in reports]
    assert ["a.md"] == found(removed)


@pytest.mark.parametrize("place", ["missing", "file.md"])
def test_a_root_that_is_no_directory_is_an_error(tmp_path: Path, place: str):
    put(tmp_path, "file.md")

    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        list(walk(str(tmp_path / place)))


def test_a_tree_deeper_than_the_recursion_limit(removed: Path):
    here = Path.cwd()
    os.chdir(removed)
    try:
        for _ in range(sys.getrecursionlimit() + 100):
            Path("x").mkdir()
            os.chdir("x")
        Path("bottom.md").write_text("deep\n")
    finally:
        os.chdir(here)

    assert 1 == len(found(removed))


def test_going_on_after_any_path_gives_the_rest(tmp_path: Path):
    put(
        tmp_path, "a/b/c.md", "a/b/d.md", "a/z.md", "a-b.md", "b.md", "c/x.md", "c.md", ".hidden", "d/e/f.png"
    )
    reports = list(walk(str(tmp_path)))

    for index, report in enumerate(reports):
        assert reports[index + 1 :] == list(walk(str(tmp_path), after=report.path))


def test_going_on_after_a_path_that_is_gone(tmp_path: Path):
    put(tmp_path, "a/b.md", "a/d.md", "c.md")

    assert ["a/d.md", "c.md"] == found(tmp_path, after="a/c.md")
    assert ["c.md"] == found(tmp_path, after="b/gone/x.md")


def test_nested_repositories_are_noted_and_walked(tmp_path: Path):
    put(tmp_path, "sub/.git/HEAD", "sub/a.md", "module/.git", "module/b.md")

    reports = [report for report in walk(str(tmp_path)) if isinstance(report, Repository)]

    assert [Repository("module"), Repository("sub")] == reports
    assert ["module/b.md", "sub/a.md"] == found(tmp_path)


def test_memory_does_not_grow_with_the_files(tmp_path: Path):
    for directory in range(20):
        (tmp_path / f"d{directory}").mkdir()
        for number in range(100):
            (tmp_path / f"d{directory}" / f"{number}.md").touch()
    list(walk(str(tmp_path / "d0")))
    tracemalloc.start()

    count = sum(1 for _ in walk(str(tmp_path)))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 2000 == count
    assert peak < 200_000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("id_rsa", Rule.SECRET),
        ("id_rsa.txt", None),
        ("penstock.toml", Rule.SECRET),
        ("server.pem", Rule.SECRET),
        (".pem", Rule.SECRET),
        ("server.pem.md", None),
        ("a.b.key", Rule.SECRET),
        ("safe.kdbx", Rule.SECRET),
        (".env", Rule.SECRET),
        (".env.local", Rule.SECRET),
        (".envrc", Rule.HIDDEN),
        ("x.env", None),
        (".netrc", Rule.SECRET),
    ],
)
def test_names_of_files_with_secrets_are_skipped(name: str, expected: Rule | None):
    assert expected == rule_of_name(name, WalkRules(include_code=True))
