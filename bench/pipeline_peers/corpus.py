"""Folders of real text files: docstrings of the standard library, and abstracts of scientific papers."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench.judged_sets import CORPUS, lines

A_FOLDER = 50
LEAST_CHARACTERS = 150
RENAMED = "renamed"
LEFT_OUT = {"test", "tests", "site-packages", "dist-packages"}


def write(folder: Path, files: int, *, abstracts: bool) -> str:
    """Write so many files, below folders of at most 50, and return a description of them.

    ``abstracts``: short texts, of CACM and Cranfield where they are there, else single docstrings. Otherwise
    all docstrings of a module are one file.
    """
    texts = _abstracts() if abstracts else _modules()
    if abstracts and not (CORPUS / "cacm").is_dir():
        texts = (text for module in _modules() for text in module.split("\n\n\n"))
    long_enough = (text for text in texts if len(text) >= LEAST_CHARACTERS)
    a_folder = min(A_FOLDER, files // 4)
    size = count = 0
    for count, text in enumerate(islice(long_enough, files), 1):
        path = folder / f"part-{(count - 1) // a_folder:03}" / f"{count:05}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        size += len(text)
    return f"{count:,} text files, {size / 1e6:.1f} MB"


def _abstracts() -> Iterator[str]:
    for name in ("cacm", "cranfield"):
        if (CORPUS / name).is_dir():
            for line in lines(CORPUS / name / "corpus.jsonl.gz"):
                yield line["text"].strip() + "\n"


def _modules() -> Iterator[str]:
    """Yield all docstrings of each module of the standard library that has some; not of its tests."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not LEFT_OUT.intersection(path.relative_to(library).parts):
            found = "\n\n\n".join(_docstrings(path.read_text(encoding="utf-8", errors="replace")))
            if found:
                yield found + "\n"


def _docstrings(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


# Changes to a folder, as a person makes them.


def edit(folder: Path) -> None:
    """Insert a sentence in the middle of the longest file, at the end of a line."""
    path = max(sorted(folder.rglob("*.txt")), key=lambda each: each.stat().st_size)
    text = path.read_text(encoding="utf-8")
    at = text.find("\n", len(text) // 2)
    path.write_text(f"{text[:at]} The wheel was repaired in spring.{text[at:]}", encoding="utf-8")


def rename(folder: Path) -> None:
    min(folder.iterdir()).rename(folder / RENAMED)


def delete(folder: Path) -> None:
    min(path for path in folder.rglob("*.txt") if path.parent.name != RENAMED).unlink()


# Comparison with an index.


def difference(folder: Path, stored: dict[str, list[str]]) -> str:
    """Return what is wrong with an index of this folder, or nothing.

    Every character except white space has to be stored once, below the path of its file.
    """
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*.txt")}
    missing, left = files.keys() - stored.keys(), stored.keys() - files.keys()
    if missing or left:
        said = [f"{len(some)} {what}" for some, what in ((missing, "missing"), (left, "left over")) if some]
        return f"files: {', '.join(said)}"
    wrong = sum(not _covers(files[name].read_text(encoding="utf-8"), stored[name]) for name in files)
    return f"files with other text: {wrong}" if wrong else ""


def _covers(text: str, chunks: list[str]) -> bool:
    whole, parts = "".join(text.split()), ["".join(chunk.split()) for chunk in chunks]
    return all(part in whole for part in parts) and sum(map(len, parts)) == len(whole)
