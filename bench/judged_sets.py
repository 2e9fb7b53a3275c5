"""Collections with queries and judged documents: CACM, Cranfield, and functions found by their docstrings.

A docstring set is made of the sources of a published package: the query is the first sentence of a
function's docstring, the answer is the function without it.
"""

from __future__ import annotations

import ast
import gzip
import math
import re
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "retrieval"
PACKAGES = {"celery": "5.7.0", "networkx": "3.6.1"}
DOCSTRING_QUERIES = 300
DEPTH = 10
_LEFT_OUT = re.compile(r"(^|/)(tests?|t|examples|docs)/")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n\s*\n")


class JudgedSet(NamedTuple):
    """Queries with the gain of each relevant document. Documents are named by the stem of their file."""

    name: str
    queries: dict[str, str]
    wanted: dict[str, dict[str, int]]

    def ndcg(self, query: str, ranked: list[str]) -> float:
        """nDCG@10 of the first documents found for a query."""
        gains = self.wanted[query]
        got = sum(gains.get(name, 0) / math.log2(rank + 2) for rank, name in enumerate(ranked[:DEPTH]))
        best = sorted(gains.values(), reverse=True)[:DEPTH]
        return got / sum(gain / math.log2(rank + 2) for rank, gain in enumerate(best))


def open_sets(corpus: Path, folder: Path) -> Iterator[tuple[JudgedSet, Path]]:
    """Yield each set that can be had, with a folder of its documents below ``folder``."""
    for name in ("cacm", "cranfield"):
        if (corpus / name).is_dir():
            yield _collection(corpus / name), unpack(corpus / name, folder / name)
    for name, version in PACKAGES.items():
        wheel = _download(name, version, folder)
        if wheel is not None:
            yield docstring_set(name, wheel, folder / name), folder / name


def _collection(corpus: Path) -> JudgedSet:
    queries = {line["_id"]: line["text"] for line in lines(corpus / "queries.jsonl")}
    return JudgedSet(corpus.name, queries, judgments(corpus / "qrels" / "test.tsv"))


def _download(name: str, version: str, folder: Path) -> Path | None:
    """Download a package; None, with a line that says so, if the index does not have it."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    done = subprocess.run([*command, f"{name}=={version}"], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name} {version} cannot be downloaded, and is left out", file=sys.stderr)
        return None
    return next(folder.glob(f"{name}-{version}-*.whl"))


def docstring_set(name: str, wheel: Path, folder: Path) -> JudgedSet:
    """Write each function of a package without its docstring to a file of its own; return the queries."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, int]] = {}
    for number, (source, sentence) in enumerate(_functions(wheel, name)):
        (folder / f"d{number}.py").write_text(f"{source}\n", encoding="utf-8")
        if sentence:
            found.setdefault(sentence, {})[f"d{number}"] = 1
    queries = {f"q{number}": sentence for number, sentence in enumerate(sorted(found))}
    # In the order of their names as text: queries from all parts of the alphabet.
    chosen = sorted(queries)[:DOCSTRING_QUERIES]
    return JudgedSet(name, queries, {each: found[queries[each]] for each in chosen})


def _functions(wheel: Path, package: str) -> Iterator[tuple[str, str]]:
    """Source and query of each function of three lines or more; an empty query if the docstring is none."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.startswith(f"{package}/") or not name.endswith(".py") or _LEFT_OUT.search(name):
                continue
            source = archive.read(name).decode("utf-8")
            yield from _parts(source.splitlines(), ast.parse(source))


def _parts(source: list[str], tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            left_out = range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1) if docstring else ()
            kept = [at for at in range(node.lineno, (node.end_lineno or 0) + 1) if at not in left_out]
            if len(kept) >= 3:
                yield "\n".join(source[at - 1] for at in kept), _sentence(docstring or "")
        yield from _parts(source, node)


def _sentence(docstring: str) -> str:
    sentence = " ".join(_SENTENCE_END.split(docstring.strip())[0].split())
    return sentence if 4 <= len(sentence.split()) <= 30 and ":" not in sentence[:12] else ""


def unpack(corpus: Path, folder: Path) -> Path:
    """Write the documents to files named after them: as they come, or one text file for each line."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = corpus / f"{corpus.name}.tar.gz"
    if archive.exists():
        with tarfile.open(archive) as tar:
            for member in tar:
                data = tar.extractfile(member) if member.isfile() else None
                if data is not None:
                    (folder / Path(member.name).name).write_bytes(data.read())
        return folder
    for line in lines(corpus / "corpus.jsonl.gz"):
        (folder / f"{line['_id']}.txt").write_text(f"{line.get('title', '')}\n\n{line['text']}\n")
    return folder


def judgments(path: Path) -> dict[str, dict[str, int]]:
    """Read the relevant documents of each query."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for line in path.read_text().splitlines()[1:]:
        query, document, gain = line.split("\t")
        if int(gain) > 0:
            found[query][document] = int(gain)
    return dict(found)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file of JSON lines, packed or not."""
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        if line.strip():
            yield msgspec.json.decode(line)
