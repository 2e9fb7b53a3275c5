"""``python -m bench.graph_search``: what search finds with the graph and without it, nDCG@10.

Questions about the code of a Python package, whose answers Python's own ``ast`` knows: who calls a function,
by its name or by the first sentence of its docstring; what a function calls; the subclasses of a class. The
package is indexed as it is. A hit counts for each function or class of the answer that it shows lines of.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from bench import graph_reference
from bench.graph_reference import Module
from bench.judged_sets import JudgedSet
from bench.stores import fresh_directory
from penstock import Penstock, config
from penstock.catalog.values import Phase
from penstock.service.hits import Hit

PACKAGES = ("redis", "starlette", "sqlalchemy")
MOST_ANSWERS = 10
MOST_QUESTIONS = 100
DEPTH = 10


class Lines(NamedTuple):
    """Where a definition stands."""

    path: str
    first: int
    last: int


class Question(NamedTuple):
    kind: str
    text: str
    about: str
    answers: frozenset[str]


class Package:
    """Definitions and relations of a package, and questions about them."""

    def __init__(self, folder: Path) -> None:
        self._modules = graph_reference.read_package(folder)
        self.lines = dict(self._places())
        self._docstrings = dict(self._sentences())
        self._callers: defaultdict[str, set[str]] = defaultdict(set)
        self._callees: defaultdict[str, set[str]] = defaultdict(set)
        for caller, callee in graph_reference.calls(self._modules):
            if caller in self.lines and callee in self.lines and caller != callee:
                self._callers[callee].add(caller)
                self._callees[caller].add(callee)
        self._subclasses = self._inheritance()

    def questions(self) -> Iterator[Question]:
        names = defaultdict(list)
        for full in self.lines:
            names[full.rpartition(".")[2]].append(full)
        for number, (short, (full, *others)) in enumerate(sorted(names.items())):
            if others or len(short) < 4:
                continue
            who = ("who calls {}", "where is {} used", "callers of {}")[number % 3]
            yield Question("callers by name", who.format(short), full, self._others(self._callers, full))
            what = ("what does {} call", "functions called by {}", "which functions does {} use")[number % 3]
            yield Question("callees by name", what.format(short), full, self._others(self._callees, full))
            heirs = ("subclasses of {}", "who inherits from {}", "which classes extend {}")[number % 3]
            yield Question("subclasses", heirs.format(short), full, self._others(self._subclasses, full))
        for number, (full, sentence) in enumerate(sorted(self._docstrings.items())):
            who = ("callers of the function to {}", "who uses this: {}", "what calls the code to {}")[
                number % 3
            ]
            text = who.format(sentence[0].lower() + sentence[1:].rstrip("."))
            yield Question("callers by docstring", text, full, self._others(self._callers, full))
            yield Question("docstring", sentence, "", frozenset((full,)))

    def _others(self, related: dict[str, set[str]], full: str) -> frozenset[str]:
        """Answers that are not on the lines of what is asked about."""
        about = self.lines[full]
        return frozenset(
            other
            for other in related.get(full, ())
            if self.lines[other].path != about.path
            or self.lines[other].last < about.first
            or about.last < self.lines[other].first
        )

    def _places(self) -> Iterator[tuple[str, Lines]]:
        for module in self._modules.values():
            for name, node in module.defined.items():
                first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
                yield f"{module.name}.{name}", Lines(str(module.path), first, last)

    def _sentences(self) -> Iterator[tuple[str, str]]:
        for module in self._modules.values():
            for name, node in module.defined.items():
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    docstring = ast.get_docstring(node) or ""
                    sentence = " ".join(re.split(r"(?<=[.!?])\s|\n\s*\n", docstring)[0].split())
                    if 4 <= len(sentence.split()) <= 30 and sentence[:1].isalpha():
                        yield f"{module.name}.{name}", sentence

    def _inheritance(self) -> dict[str, set[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for module in self._modules.values():
            for name, node in module.defined.items():
                for base in node.bases if isinstance(node, ast.ClassDef) else ():
                    full = self._base(module, base)
                    if full in self.lines:
                        found[full].add(f"{module.name}.{name}")
        return found

    def _base(self, module: Module, base: ast.expr) -> str:
        if not isinstance(base, ast.Name):
            return ""
        if base.id in module.defined:
            return f"{module.name}.{base.id}"
        return graph_reference.followed(self._modules, module.imported.get(base.id)) or ""


def chosen(package: Package) -> dict[str, list[Question]]:
    """Questions with few answers by kind, spread over all names."""
    found: defaultdict[str, list[Question]] = defaultdict(list)
    for question in package.questions():
        if 1 <= len(question.answers) <= MOST_ANSWERS:
            found[question.kind].append(question)
    return {
        kind: every[:: max(1, len(every) // MOST_QUESTIONS)][:MOST_QUESTIONS] for kind, every in found.items()
    }


def shown(hits: Iterable[Hit], lines: dict[str, Lines], answers: frozenset[str]) -> list[str]:
    """The answer that each hit shows first; its own place for a hit that shows none."""
    left = set(answers)
    found: list[str] = []
    for hit in hits:
        here = sorted(
            name
            for name in left
            if lines[name].path == hit.path
            and lines[name].first <= (hit.last_line or 0)
            and (hit.first_line or 0) <= lines[name].last
        )
        left -= set(here)
        found += here or [f"{hit.path}:{hit.first_line}"]
    return found[:DEPTH]


def index_with_graph(app: Penstock, folder: Path) -> None:
    """Index a folder, and wait for its graph as well: documents are searched before it is complete."""
    with app.worker_thread():
        app.wait(app.index(folder, include_code=True, graph=True, project=False).job_id)
        while _open_tasks(app):
            app.documents.catalog.wait(0.2)


def _open_tasks(app: Penstock) -> int:
    with app.documents.catalog.snapshot() as snapshot:
        return snapshot.open_tasks(Phase.GRAPHRAG)


def measure(folder: Path, below: Path) -> None:
    package = Package(folder)
    state = below / f"state-{folder.name}"
    state.mkdir()
    with Penstock(settings=config.load({}, state_dir=state)) as app:
        index_with_graph(app, folder)
        for kind, questions in chosen(package).items():
            judged = JudgedSet(
                folder.name,
                {str(number): one.text for number, one in enumerate(questions)},
                {str(number): dict.fromkeys(one.answers, 1) for number, one in enumerate(questions)},
            )
            scores = []
            for graph in (False, True):
                ranked = [
                    shown(app.search(one.text, per_source=None, graph=graph), package.lines, one.answers)
                    for one in questions
                ]
                scores.append(fmean(judged.ndcg(str(number), each) for number, each in enumerate(ranked)))
            without, with_graph = scores
            print(
                f"| {folder.name} | {kind} | {len(questions)} | {without:.3f} | {with_graph:.3f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.graph_search", description=__doc__)
    parser.add_argument("--package", action="append", help="name of an installed package")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    print("| package | questions | number | without | with the graph |")
    print("|---|---|---:|---:|---:|")
    with fresh_directory(options.dir) as below:
        for name in options.package or PACKAGES:
            installed = Path(sysconfig.get_paths()["purelib"]) / name
            # Elsewhere: folders such as .venv are left out of an index.
            copied = shutil.copytree(installed, below / name, ignore=shutil.ignore_patterns("__pycache__"))
            measure(copied, below)


if __name__ == "__main__":
    main()
