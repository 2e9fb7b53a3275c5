"""``python -m bench.weak_hits``: how well the rule for weak hits tells relevant hits from foreign ones.

Relevant: judged hits among the first ten, on CACM, on Cranfield and in this documentation. Foreign: the first
ten hits of queries from another field: those of the other collections, and everyday questions. A good rule
calls few of the relevant weak, and most of the foreign.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.judged_sets import CORPUS, judgments, lines, unpack
from penstock import Penstock, config
from penstock.catalog.rules.words import query_words
from penstock.service.search import WORDS_COUNT

DOCS = Path(__file__).resolve().parents[1] / "docs"
QUESTIONS = Path(__file__).with_name("weak_hits.json")
CUTS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6)
FOREIGN_QUERIES = 60
"""Queries taken of each other collection."""


class Measured(NamedTuple):
    """A hit: the share of the query's words in it, its similarity, and what the rule says."""

    share: float
    similarity: float
    weak: bool


class Measurement:
    def __init__(self, embedder: str, below: Path) -> None:
        self._embedder = embedder
        self._below = below
        self.relevant: list[Measured] = []
        self.foreign: dict[str, list[Measured]] = {"other collections": [], "everyday questions": []}

    def add(
        self,
        folder: Path,
        judged: Iterable[tuple[str, Iterable[str]]],
        others: Iterable[str],
        everyday: Iterable[str],
    ) -> None:
        state = self._below / f"state-{folder.name}"
        settings = config.load({}, state_dir=state, embedder=self._embedder)
        with Penstock(settings=settings) as app:
            with app.worker_thread():
                app.wait(app.index(folder, project=False).job_id)
            for query, wanted in judged:
                names = set(wanted)
                self.relevant += [hit for name, hit in _measured(app, query) if name in names]
            for kind, queries in zip(self.foreign, (others, everyday), strict=True):
                self.foreign[kind] += [hit for query in queries for _, hit in _measured(app, query)]

    def show(self) -> None:
        groups = {"relevant": self.relevant, **self.foreign}
        print(f"{self._embedder}: share of hits that are weak")
        print(f"{'below':>8}" + "".join(f"{f'{name} ({len(hits):,})':>30}" for name, hits in groups.items()))
        for cut in CUTS:
            weak = [
                sum(hit.similarity + WORDS_COUNT * hit.share < cut for hit in hits) / max(1, len(hits))
                for hits in groups.values()
            ]
            print(f"{cut:>8}" + "".join(f"{share:>30.3f}" for share in weak))
        rule = [sum(hit.weak for hit in hits) / max(1, len(hits)) for hits in groups.values()]
        print(f"{'rule':>8}" + "".join(f"{share:>30.3f}" for share in rule), flush=True)


def _measured(app: Penstock, query: str) -> list[tuple[str, Measured]]:
    words = len(query_words(query)) or 1
    return [
        (Path(hit.path).stem, Measured(len(hit.words) / words, hit.similarity or 0.0, hit.weak))
        for hit in app.search(query)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.weak_hits", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with cacm and cranfield")
    parser.add_argument("--embedder", default="static", help="static or hashing")
    options = parser.parse_args()
    own = msgspec.json.decode(QUESTIONS.read_bytes())
    collections = [
        options.corpus / name for name in ("cacm", "cranfield") if (options.corpus / name).is_dir()
    ]
    queries = {
        path.name: {line["_id"]: line["text"] for line in lines(path / "queries.jsonl")}
        for path in collections
    }
    with tempfile.TemporaryDirectory() as below:
        measurement = Measurement(options.embedder, Path(below))
        for path in collections:
            folder = Path(below, path.name)
            folder.mkdir()
            unpack(path, folder)
            wanted = judgments(path / "qrels" / "test.tsv")
            judged = [(queries[path.name][number], good) for number, good in wanted.items()]
            measurement.add(folder, judged, _others(queries, path.name), own["everyday"])
        measurement.add(DOCS, own["documentation"], _others(queries, ""), own["everyday"])
        measurement.show()


def _others(queries: dict[str, dict[str, str]], name: str) -> list[str]:
    return [
        query
        for other in queries
        if other != name
        for query in list(queries[other].values())[:FOREIGN_QUERIES]
    ]


if __name__ == "__main__":
    main()
