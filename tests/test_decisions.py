"""Decision notes are numbered without gaps, listed, and cited by numbers that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import decisions

BODY = "\n\n2026-11-16\n\n**Context.** A.\n\n**Decision.** B.\n\n**Consequence.** C.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two notes, a list of them and a module that cites the second."""
    notes = tmp_path / decisions.NOTES
    notes.mkdir(parents=True)
    (tmp_path / "src").mkdir()
    write(tmp_path, "0001-first.md", "# 0001: First" + BODY)
    write(tmp_path, "0002-second.md", "# 0002: Second" + BODY)
    (tmp_path / "src" / "module.py").write_text("# See decision 0002.\n", encoding="utf-8")
    table = decisions.list_of_notes(decisions.read_notes(tmp_path))
    write(tmp_path, "README.md", f"# Decisions\n\n{table}\nMore.\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / decisions.NOTES / name).write_text(text, encoding="utf-8")


def read(root: Path, name: str) -> str:
    return (root / decisions.NOTES / name).read_text(encoding="utf-8")


def test_the_notes_of_this_project_have_no_faults():
    assert [] == decisions.find_faults()


def test_a_project_in_order_has_no_faults(root: Path):
    assert [] == decisions.find_faults(root)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("0004-late.md", "# 0004: Late" + BODY, "0004-late.md: expected number 0003"),
        ("0002-twin.md", "# 0002: Twin" + BODY, "0002-twin.md: expected number 0003"),
        ("0003-wrong.md", "# 0007: Wrong" + BODY, "0003-wrong.md: expected the first line '# 0003: Title'"),
        ("0003-short.md", "# 0003: Short\n\n**Context.** A.\n", "0003-short.md: has no **Decision.**"),
        ("0003_Name.md", "# 0003: Name" + BODY, "0003_Name.md: expected a name such as 0001-some-words.md"),
        ("0003-new.md", "# 0003: New" + BODY, "README.md: the list of notes is not current"),
    ],
)
def test_a_fault_of_a_note_is_found(root: Path, name: str, text: str, fault: str):
    write(root, name, text)

    assert fault in decisions.find_faults(root)


def test_a_citation_of_no_note_is_found(root: Path):
    (root / "src" / "module.py").write_text("# See decision 0009.\n", encoding="utf-8")

    assert ["src/module.py: there is no decision 0009"] == decisions.find_faults(root)


def test_a_gap_is_closed_and_references_follow(root: Path):
    write(root, "0005-late.md", "# 0005: Late" + BODY)
    (root / "src" / "module.py").write_text("# Decision\n0005, then decision 0002.\n", encoding="utf-8")
    (root / "CHANGELOG.md").write_text("[0005](docs/decisions/0005-late.md#late)\n", encoding="utf-8")

    assert [] == decisions.renumber(root)
    assert [] == decisions.find_faults(root)
    assert "# 0003: Late" + BODY == read(root, "0003-late.md")
    assert "# Decision\n0003, then decision 0002.\n" == (root / "src" / "module.py").read_text("utf-8")
    assert "[0003](docs/decisions/0003-late.md#late)\n" == (root / "CHANGELOG.md").read_text("utf-8")


def test_two_notes_of_one_number_are_separated_and_unclear_citations_reported(root: Path):
    write(root, "0002-twin.md", "# 0002: Twin" + BODY)
    write(root, "0003-third.md", "# 0003: Third, see [0002](0002-twin.md)" + BODY)

    assert ["src/module.py: which of two notes does 'decision NNNN' mean?"] == decisions.renumber(root)
    assert [] == decisions.find_faults(root)
    assert "# 0004: Third, see [0003](0003-twin.md)" + BODY == read(root, "0004-third.md")
