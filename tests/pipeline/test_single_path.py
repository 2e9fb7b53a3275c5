"""Rules for single paths agree with a walk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.pipeline.walk.ignore import FoundFile, Rule, Skipped, WalkRules
from penstock.pipeline.walk.walker import SinglePathRules, walk

FILES = [
    "a.md",
    "b.log",
    "code.py",
    ".hidden.md",
    ".hidden/in.md",
    "deep/er/still.md",
    "deep/no.md",
    "deep/er/yes.md",
    "env/pyvenv.cfg",
    "env/lib.md",
    "id_rsa",
    "image.png",
    "sound.mp3",
    "node_modules/x/y.md",
    "other/large.md",
    "state/queue.md",
    ".penstock/z.md",
]
RULES = {
    "plain": WalkRules(),
    "narrow": WalkRules(include=("*.md", "*.log"), exclude=("other/",), include_code=False),
    "shallow": WalkRules(max_depth=2, max_bytes=10),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in FILES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text" * (10 if "large" in name else 1))
    (root / ".penstockignore").write_text("*.log\n")
    (root / "deep" / ".penstockignore").write_text("no.md\ner/*\n!er/yes.md\n")
    (root / "link.md").symlink_to("a.md")
    (root / "linked").symlink_to("deep")
    return root


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_every_path_of_a_walk_is_judged_as_the_walk_did(root: Path, rules: WalkRules):
    sight = SinglePathRules(str(root), rules)
    reports = [report for report in walk(str(root), rules) if isinstance(report, FoundFile | Skipped)]
    assert len(reports) > 8
    for report in reports:
        size = os.lstat(root / report.path).st_size
        folder = isinstance(report, Skipped) and report.directory
        expected = None if isinstance(report, FoundFile) else report
        assert expected == sight.skipped(report.path, size, folder=folder), report.path
        if folder:
            # A skipped folder skips its contents.
            assert expected == sight.skipped(f"{report.path}/in/it.md")


def test_a_path_with_nothing_at_it_is_judged_by_its_name_and_place(root: Path):
    sight = SinglePathRules(str(root), WalkRules(state_dirs=(str(root / "state"),)))
    said = {
        path: getattr(sight.skipped(path), "rule", None)
        for path in ("deep/er/new.md", "deep/new.md", "not/there/new.md", "state/new.md", "linked/a.md")
    }
    assert {
        "deep/er/new.md": Rule.PENSTOCKIGNORE,
        "deep/new.md": None,
        "not/there/new.md": None,
        "state/new.md": Rule.STATE,
        "linked/a.md": Rule.LINK_REPEATED,
    } == said
    assert None is sight.skipped("deep", folder=True)
