"""Check the numbers of docs/decisions; with --fix, close gaps and rewrite the list in its README.

A note is ``NNNN-some-words.md``, and its first line is ``# NNNN: Title``. Numbers start at 0001 and have no
gaps. Other files refer to a note by its file name or as ``decision NNNN``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NOTES = Path("docs") / "decisions"
SEARCHED = ("src", "tests", "docs", "scripts", "bench", "examples")
SUFFIXES = frozenset([".md", ".py", ".sql", ".lua", ".toml"])
SECTIONS = ("**Context.**", "**Decision.**", "**Consequence.**")

_FILE = re.compile(r"(\d{4})-[a-z0-9-]+\.md")
_HEADING = re.compile(r"# (\d{4}): (\S.*)")
_REFERENCE = re.compile(r"(?:\[(?P<label>\d{4})\]\((?P<folder>[./\w-]*))?(?P<file>\d{4}-[a-z0-9-]+\.md)")
_CITATION = re.compile(r"\b(?P<word>[Dd]ecision\s+)(?P<number>\d{4})\b")
_LIST = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


class Note(NamedTuple):
    """One decision note: its file name, the number in it, and its title."""

    file: str
    number: str
    title: str


def read_notes(root: Path = ROOT) -> list[Note]:
    """Every note, ordered by file name. A file without a proper first line has an empty title."""
    found = []
    for path in sorted((root / NOTES).glob("[0-9]*.md")):
        heading = _HEADING.fullmatch(path.read_text(encoding="utf-8").partition("\n")[0])
        number, title = heading.groups() if heading else (path.name[:4], "")
        found.append(Note(path.name, number, title))
    return found


def find_faults(root: Path = ROOT) -> list[str]:
    """Everything that is wrong with the notes, one sentence each."""
    notes = read_notes(root)
    faults = [*_wrong_notes(root, notes)]
    for place, note in enumerate(notes, start=1):
        if note.file[:4] != f"{place:04}":
            faults.append(f"{note.file}: expected number {place:04}")
    if list_of_notes(notes) not in (root / NOTES / "README.md").read_text(encoding="utf-8"):
        faults.append("README.md: the list of notes is not current")
    known = {note.number for note in notes}
    for path, text in _texts(root):
        unknown = {found["number"] for found in _CITATION.finditer(text)} - known
        faults += [f"{path.relative_to(root)}: there is no decision {number}" for number in sorted(unknown)]
    return faults


def _wrong_notes(root: Path, notes: list[Note]) -> Iterator[str]:
    for note in notes:
        if not _FILE.fullmatch(note.file):
            yield f"{note.file}: expected a name such as 0001-some-words.md"
        if not note.title or note.number != note.file[:4]:
            yield f"{note.file}: expected the first line '# {note.file[:4]}: Title'"
        text = (root / NOTES / note.file).read_text(encoding="utf-8")
        yield from (f"{note.file}: has no {section}" for section in SECTIONS if section not in text)


def list_of_notes(notes: list[Note]) -> str:
    """The table in the README of the notes."""
    rows = [f"| [{note.file[:4]}]({note.file}) | {note.title} |\n" for note in notes]
    return "".join(["| note | decision |\n", "|---|---|\n", *rows])


def renumber(root: Path = ROOT) -> list[str]:
    """Close gaps in the order of file names, rewrite references and the list; returns what needs a person.

    Two notes with one number are both renumbered. References by file name follow; ``decision NNNN`` does not
    say which of the two it means.
    """
    notes = read_notes(root)
    files = {note.file: f"{place:04}{note.file[4:]}" for place, note in enumerate(notes, start=1)}
    twice = {number for number, count in Counter(file[:4] for file in files).items() if count > 1}
    numbers = {old[:4]: new[:4] for old, new in files.items() if old[:4] not in twice}
    unclear = []
    for path, text in list(_texts(root)):
        if any(found["number"] in twice for found in _CITATION.finditer(text)):
            unclear.append(f"{path.relative_to(root)}: which of two notes does 'decision NNNN' mean?")
        changed = _rewritten(text, files, numbers)
        if path.name in files and path.parent == root / NOTES:
            changed = re.sub(r"\A# \d{4}:", f"# {files[path.name][:4]}:", changed)
        if changed != text:
            path.write_text(changed, encoding="utf-8")
    # Never two files under one name, whatever order they are renamed in.
    for old, new in files.items():
        (root / NOTES / old).rename(root / NOTES / f"{new}.new")
    for new in files.values():
        (root / NOTES / f"{new}.new").rename(root / NOTES / new)
    _write_list(root)
    return unclear


def _rewritten(text: str, files: dict[str, str], numbers: dict[str, str]) -> str:
    def reference(found: re.Match[str]) -> str:
        new = files.get(found["file"], found["file"])
        return f"[{new[:4]}]({found['folder']}{new}" if found["label"] else new

    def citation(found: re.Match[str]) -> str:
        return found["word"] + numbers.get(found["number"], found["number"])

    return _CITATION.sub(citation, _REFERENCE.sub(reference, text))


def _write_list(root: Path) -> None:
    path = root / NOTES / "README.md"
    table = list_of_notes(read_notes(root))
    path.write_text(_LIST.sub(lambda _: table, path.read_text(encoding="utf-8"), count=1), encoding="utf-8")


def _texts(root: Path) -> Iterator[tuple[Path, str]]:
    """Every text that may refer to a note, except the tests of this script."""
    pages = [*root.glob("*.md"), *(path for name in SEARCHED for path in sorted((root / name).rglob("*")))]
    for path in pages:
        if path.suffix in SUFFIXES and path.is_file() and path.name != "test_decisions.py":
            yield path, path.read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    unclear = renumber() if arguments == ["--fix"] else []
    faults = [*unclear, *find_faults()]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
