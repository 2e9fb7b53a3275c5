"""``python -m bench.retrieval``: how well search finds, on labelled collections: nDCG@10 by mode.

Documents are indexed as a folder of files, as a person would. Beside them stand the numbers of a plain BM25
on the same files, from the collection's own description.
"""

from __future__ import annotations

import argparse
import gzip
import math
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock import Penstock, config

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "retrieval"
MODES = ("keyword", "vector", "hybrid")
PLAIN = {"cacm": (0.4726, 0.4929), "cranfield": (0.3658, 0.3883)}
"""BM25 with k1=0.9 b=0.4, and with k1=1.5 b=0.75."""
DEPTH = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.retrieval", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with cacm and cranfield")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where files are made")
    options = parser.parse_args()
    if not options.corpus.is_dir():
        print(f"{options.corpus} is not there: nothing to measure")
        return
    print(f"{'nDCG@10':12}{'BM25':>14}" + "".join(f"{mode:>10}" for mode in MODES) + f"{'indexed in':>14}")
    for name, (low, high) in PLAIN.items():
        with tempfile.TemporaryDirectory(dir=options.dir) as below:
            scores, seconds = measured(options.corpus / name, Path(below))
        shown = "".join(f"{scores[mode]:>10.4f}" for mode in MODES)
        print(f"{name:12}{f'{low:.3f}-{high:.3f}':>14}{shown}{f'{seconds:.1f} s':>14}", flush=True)


def measured(corpus: Path, below: Path) -> tuple[dict[str, float], float]:
    folder = below / "files"
    folder.mkdir()
    unpack(corpus, folder)
    settings = config.load({}, state_dir=below / "state")
    with Penstock(settings=settings) as app:
        began = time.monotonic()
        with app.worker_thread():
            app.wait(app.index(folder).job_id)
        seconds = time.monotonic() - began
        queries = {line["_id"]: line["text"] for line in lines(corpus / "queries.jsonl")}
        wanted = judgments(corpus / "qrels" / "test.tsv")
        scores = {
            mode: sum(_ndcg(_ranked(app, queries[each], mode), good) for each, good in wanted.items())
            / len(wanted)
            for mode in MODES
        }
    return scores, seconds


def unpack(corpus: Path, folder: Path) -> None:
    """Files named after their documents: as they come, or one text file for each line."""
    archive = corpus / f"{corpus.name}.tar.gz"
    if archive.exists():
        with tarfile.open(archive) as tar:
            for member in tar:
                data = tar.extractfile(member) if member.isfile() else None
                if data is not None:
                    (folder / Path(member.name).name).write_bytes(data.read())
        return
    for line in lines(corpus / "corpus.jsonl.gz"):
        (folder / f"{line['_id']}.txt").write_text(f"{line.get('title', '')}\n\n{line['text']}\n")


def _ranked(app: Penstock, query: str, mode: str) -> list[str]:
    """Documents by their best chunk; copies of a text follow each other."""
    hits = app.search(query, mode=mode, limit=DEPTH * 5, per_source=1)
    paths = [path for hit in hits for path in (hit.path, *(other.path for other in hit.also_in))]
    return list(dict.fromkeys(Path(path).stem for path in paths))[:DEPTH]


def _ndcg(ranked: list[str], wanted: dict[str, int]) -> float:
    got = sum(wanted.get(name, 0) / math.log2(rank + 2) for rank, name in enumerate(ranked))
    best = sorted(wanted.values(), reverse=True)[:DEPTH]
    ideal = sum(gain / math.log2(rank + 2) for rank, gain in enumerate(best))
    return got / ideal if ideal else 0.0


def judgments(path: Path) -> dict[str, dict[str, int]]:
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for line in path.read_text().splitlines()[1:]:
        query, document, gain = line.split("\t")
        if int(gain) > 0:
            found[query][document] = int(gain)
    return dict(found)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        if line.strip():
            yield msgspec.json.decode(line)


if __name__ == "__main__":
    main()
