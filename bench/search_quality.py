"""``python -m bench.search_quality``: how well search finds, on judged collections: nDCG@10 by mode.

Documents are indexed as a folder of files, as a person would. ``--choose`` compares values of the constants
of search without choosing them on the queries that they are measured on: by five parts of the queries, and by
leaving out one collection at a time.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from bench.graph_search import index_with_graph
from bench.judged_sets import CORPUS, DEPTH, JudgedSet, open_sets
from bench.postgres_server import store
from bench.stores import fresh_directory
from penstock import Penstock, config
from penstock.catalog.sql.search import match_expression
from penstock.catalog.values import Filters
from penstock.errors import PenstockError
from penstock.pipeline.embed import open_space
from penstock.pipeline.vectors.cache import VectorCache
from penstock.service.requests import Mode
from penstock.service.search import VECTOR_WEIGHTS, Rankings, SpaceRanking

MODES: tuple[Mode, ...] = ("keyword", "vector", "hybrid")
BM25 = {"cacm": (0.4726, 0.4929), "cranfield": (0.3658, 0.3883)}
"""A plain BM25 with k1=0.9 b=0.4, and with k1=1.5 b=0.75, from the description of the collections."""
WITH_GRAPH = "graph"
CANDIDATES = 100
FOLDS = 5
WEIGHTS = (0.3, 0.5, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Weights of the vector half that are compared."""
SATURATIONS = (1.2, 1.4, 1.5, 1.6, 1.7, 1.8, 2.0, 2.4)
"""Values of BM25's k1 that are compared."""

Scores = dict[float, list[float]]
"""nDCG of each query by the value of a constant."""


class Measurement:
    """Figures of one collection, indexed by one embedder in one store."""

    def __init__(self, judged: JudgedSet, app: Penstock) -> None:
        self._judged = judged
        self._app = app
        self._catalog = app.documents.catalog
        self._vectors = VectorCache()

    def by_mode(self, *, graph: bool) -> dict[str, float]:
        """Mean nDCG@10 of each mode, and of hybrid search with the graph."""
        means: dict[str, float] = {mode: fmean(self._each(partial(self._found, mode=mode))) for mode in MODES}
        if graph:
            means[WITH_GRAPH] = fmean(self._each(partial(self._found, mode="hybrid", graph=True)))
        return means

    def by_weight(self) -> Scores:
        """NDCG of hybrid search by the weight of vectors."""
        rankings = {text: self._rankings(text) for text in self._asked()}
        return {weight: self._each(partial(self._fused, rankings, weight)) for weight in WEIGHTS}

    def _fused(self, rankings: Mapping[str, Rankings], weight: float, query: str) -> list[str]:
        weights = dict.fromkeys(VECTOR_WEIGHTS, weight)
        return self._names([number for number, _ in rankings[query].fused(weights)])

    def by_saturation(self, file: Path) -> Scores:
        """NDCG of keyword search by k1, in the SQLite file of the catalog.

        FTS5 has a fixed k1 of 1.2. It counts the words of a column times its weight, which has the effect of
        k1 divided by the weight.
        """
        with sqlite3.connect(file) as connection:
            return {k1: self._each(partial(self._by_k1, connection, k1)) for k1 in SATURATIONS}

    def _by_k1(self, connection: sqlite3.Connection, k1: float, query: str) -> list[str]:
        found = connection.execute(
            "SELECT rowid FROM catalog_keyword WHERE catalog_keyword MATCH ? AND rank MATCH ?"
            " ORDER BY rank LIMIT ?",
            (match_expression(query), f"bm25({1.2 / k1})", 5 * DEPTH),
        )
        return self._names([number for (number,) in found])

    def _asked(self) -> list[str]:
        return [self._judged.queries[each] for each in self._judged.wanted]

    def _each(self, find: Callable[[str], list[str]]) -> list[float]:
        judged = self._judged
        return [judged.ndcg(each, find(judged.queries[each])) for each in judged.wanted]

    def _found(self, query: str, mode: Mode, *, graph: bool = False) -> list[str]:
        """Documents by their best chunk; copies of a text follow each other."""
        hits = self._app.search(query, mode=mode, limit=5 * DEPTH, per_source=1, graph=graph)
        return _stems(path for hit in hits for path in (hit.path, *(other.path for other in hit.also_in)))

    def _rankings(self, query: str) -> Rankings:
        tenant_id = self._app.settings.tenant_id
        with self._catalog.snapshot() as snapshot:
            words = snapshot.keyword(query, Filters(tenant_id=tenant_id), limit=CANDIDATES, snippets=0)
            (space,) = snapshot.spaces(tenant_id)
            embedder = open_space(space.name, models_dir=self._app.settings.models_dir)
            assert embedder is not None
            vector = embedder.embed([query])[0]
            near = self._vectors.nearest(snapshot, tenant_id, space.name, vector, limit=CANDIDATES)
        return Rankings(CANDIDATES, words, [SpaceRanking(embedder.name, near, CANDIDATES)], [])

    def _names(self, content_ids: Sequence[int]) -> list[str]:
        with self._catalog.snapshot() as snapshot:
            views = snapshot.hydrate(content_ids[: 5 * DEPTH])
        return _stems(view.path for view in views if view)


def _stems(paths: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(Path(path).stem for path in paths))[:DEPTH]


def choose(scores: Mapping[str, Scores]) -> Iterator[str]:
    """Compare the values of a constant; both ways, the queries that are measured choose nothing."""
    for value in next(iter(scores.values())):
        means = {name: fmean(by_value[value]) for name, by_value in scores.items()}
        yield f"{value:>12}" + "".join(f"{mean:>10.4f}" for mean in means.values()) + _mean(means.values())
    folds = {name: _by_folds(by_value) for name, by_value in scores.items()}
    yield f"{'folds':>12}" + "".join(f"{mean:>10.4f}" for mean in folds.values()) + _mean(folds.values())
    means, values = {}, []
    for name in scores:
        value = _best([by_value for other, by_value in scores.items() if other != name])
        values.append(value)
        means[name] = fmean(scores[name][value])
    yield f"{'left out':>12}" + "".join(f"{mean:>10.4f}" for mean in means.values()) + _mean(means.values())
    yield f"{'with':>12}" + "".join(f"{value:>10}" for value in values)


def _by_folds(by_value: Scores) -> float:
    """The mean over five parts of the queries, each with the value that is best for the other four."""
    got: list[float] = []
    for fold in range(FOLDS):
        others = {
            value: [each for at, each in enumerate(every) if at % FOLDS != fold]
            for value, every in by_value.items()
        }
        got += by_value[_best([others])][fold::FOLDS]
    return fmean(got)


def _best(sets: Sequence[Scores]) -> float:
    return max(sets[0], key=lambda value: fmean(fmean(by_value[value]) for by_value in sets))


def _mean(values: Iterable[float]) -> str:
    return f"{fmean(values):>10.4f}"


def measure(options: argparse.Namespace, embedder: str) -> None:
    """Index each collection and print its figures."""
    print(f"\n{embedder}, {options.store}")
    modes = [*MODES, WITH_GRAPH] if options.graph else MODES
    print(
        f"{'nDCG@10':12}{'BM25':>14}" + "".join(f"{mode:>10}" for mode in modes) + f"{'indexed, CPU s':>16}"
    )
    by_mode: list[dict[str, float]] = []
    by_weight: dict[str, Scores] = {}
    by_saturation: dict[str, Scores] = {}
    with fresh_directory(options.dir) as below:
        for judged, folder in open_sets(options.corpus, below):
            state = below / f"state-{judged.name}"
            state.mkdir()
            url = {"url": store(state)} if options.store == "postgres" else {}
            with Penstock(settings=config.load({}, state_dir=state, embedder=embedder, **url)) as app:
                seconds = _index(app, folder, graph=options.graph)
                measurement = Measurement(judged, app)
                by_mode.append(measurement.by_mode(graph=options.graph))
                print(_line(judged.name, by_mode[-1], seconds), flush=True)
                if options.choose:
                    by_weight[judged.name] = measurement.by_weight()
                if options.choose and options.store == "sqlite":
                    by_saturation[judged.name] = measurement.by_saturation(state / "penstock.db")
    means: dict[str, float] = {mode: fmean(scores[mode] for scores in by_mode) for mode in modes}
    print(_line("mean", means, None))
    for title, scores in (("weight of vectors", by_weight), ("k1 of words", by_saturation)):
        if scores:
            print(f"\n{title}\n{'':12}" + "".join(f"{name:>10}" for name in scores) + f"{'mean':>10}")
            print("\n".join(choose(scores)), flush=True)


def _index(app: Penstock, folder: Path, *, graph: bool) -> float:
    began = time.process_time()
    if graph:
        index_with_graph(app, folder)
    else:
        with app.worker_thread():
            app.wait(app.index(folder, include_code=True, project=False).job_id)
    return time.process_time() - began


def _line(name: str, scores: dict[str, float], seconds: float | None) -> str:
    low, high = BM25.get(name, (None, None))
    plain = f"{low:.3f}, {high:.3f}" if low and high else ""
    shown = "".join(f"{score:>10.4f}" for score in scores.values())
    return f"{name:12}{plain:>14}{shown}" + (f"{seconds:>16.1f}" if seconds is not None else "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.search_quality", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with cacm and cranfield")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where files are made")
    parser.add_argument(
        "--embedder", action="append", choices=["static", "minilm"], help="static, unless given (repeatable)"
    )
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--graph", action="store_true", help="extract entities, and search with them, too")
    parser.add_argument("--choose", action="store_true", help="compare values of the constants, too")
    options = parser.parse_args()
    try:
        for embedder in options.embedder or ["static"]:
            measure(options, embedder)
    except PenstockError as error:
        print(f"{error.message}. {error.remedy or ''}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
