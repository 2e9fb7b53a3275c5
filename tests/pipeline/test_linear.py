"""Linear cost of files, ignore patterns and queries: size × 4 costs at most 2.3 × 2.3 times the CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from penstock.catalog import protocol
from penstock.catalog.rules.words import as_terms, keyword_text, phrases
from penstock.errors import UnreadableDocument
from penstock.pipeline.draft import chunk_page
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.walk.ignore import WalkRules
from penstock.pipeline.walk.walker import walk
from penstock.service.hits import make_snippet
from tests.pipeline.hostile_inputs import FILES, IGNORES, QUERIES

STEP = 4
MOST = 2.3**2
NOISE = 0.004
"""Allowed error of a measurement, in seconds."""
NOISE_OF_PARSERS = 0.04
"""The same for pages and code, where native parsers allocate memory."""
OFFICE = (".docx", ".pptx", ".xlsx", ".odt", ".ods", ".rtf", ".epub", ".doc", ".ppt")
PACKED = (".eml", ".mbox", ".zip", ".tar", ".gz", ".tif")
PARSED = (
    ".html",
    ".pdf",
    ".c",
    ".cpp",
    ".h",
    ".go",
    ".java",
    ".js",
    ".lua",
    ".py",
    ".rs",
    ".ts",
    *OFFICE,
    *PACKED,
)
ROUNDS = 12
"""Measurements before a failure: on a busy machine a single one may take twice as long."""
N = 2_000
LARGER = {
    "cuts that get worse": 100,
    "ideographic full stops": 2,
    "nested lists": 4,
    "nested tables": 4,
    "one long heading": 4,
}
"""Inputs with a growth that shows only at larger sizes."""
PARSED_BY_OTHERS = frozenset(["open generic types", "spaces on a page"])
"""Inputs with superlinear cost in the TypeScript grammar or pdfium; the file budget stops them."""


def cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _cpu_as_long(small: Callable[[], object]) -> float:
    """Repeated in one measurement as long as the large one, so that both meet the same noise."""

    def again_and_again() -> None:
        for _ in range(STEP):
            small()

    return cpu(again_and_again) / STEP


def check_growth(small: Callable[[], object], large: Callable[[], object], noise: float = NOISE) -> None:
    least_small = least_large = float("inf")
    for number in range(ROUNDS):
        once = min(cpu(small), cpu(small)) if number == 0 else _cpu_as_long(small)
        least_small = min(least_small, once)
        least_large = min(least_large, cpu(large))
        if least_large <= MOST * least_small + noise:
            return
    pytest.fail(f"{STEP} times the input takes {least_large:.3f} s instead of {least_small:.3f} s")


def read(name: str, data: bytes) -> None:
    try:
        extracted = extract(Content(name, data))
    except UnreadableDocument:
        return
    for page in extracted.pages:
        for chunk in chunk_page(page.text, extracted.shape, extracted.file_type.language):
            " > ".join(chunk.headings)
            " ".join(chunk.symbols)


def first_of_each_type() -> list[ParameterSet]:
    """Names of all inputs; those after the first of their file type are left to `make test-long`."""
    types: set[str] = set()
    found = []
    for name in sorted(FILES.keys() - PARSED_BY_OTHERS):
        suffix = Path(FILES[name](3)[0]).suffix
        found.append(pytest.param(name, marks=[pytest.mark.long] * (suffix in types)))
        types.add(suffix)
    return found


@pytest.mark.parametrize("name", first_of_each_type())
def test_reading_and_cutting_grow_with_the_file(name: str):
    n = N * LARGER.get(name, 1)
    small, large = FILES[name](n), FILES[name](STEP * n)
    read(*FILES[name](50))

    noise = NOISE_OF_PARSERS if small[0].endswith(PARSED) else NOISE
    check_growth(lambda: read(*small), lambda: read(*large), noise)


@pytest.mark.parametrize("name", sorted(IGNORES))
def test_walking_grows_with_the_ignore_file(tmp_path: Path, name: str):
    for folder, n in (("small", 500), ("large", STEP * 500)):
        text, paths = IGNORES[name](n)
        # The longer paths first: a folder there cannot be a file here.
        for path in sorted(paths, key=len, reverse=True):
            place = tmp_path / folder / path
            if max(map(len, place.parts)) < 256 and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text("x")
        (tmp_path / folder / ".gitignore").write_text(text)

    def walked(folder: str) -> Callable[[], object]:
        return lambda: list(walk(str(tmp_path / folder), WalkRules()))

    check_growth(walked("small"), walked("large"))


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_asking_grows_with_the_query(name: str):
    text = "the words of a chunk that is found by its meaning " * 40

    def asked(query: str) -> Callable[[], object]:
        return lambda: (
            as_terms(phrases(query)),
            protocol.posix_expression(query),
            make_snippet(text, query + "x", ("<", ">")),
        )

    check_growth(asked(QUERIES[name](4 * N)), asked(QUERIES[name](STEP * 4 * N)))


@pytest.mark.parametrize("part", ["a", "A", "Aa", "aA", "AAa", "1A", "a ", "水"])
def test_words_for_a_keyword_index_grow_with_the_text(part: str):
    check_growth(lambda: keyword_text(part * N), lambda: keyword_text(part * STEP * N))


@pytest.mark.parametrize("glob", ["*a*a*a*a*a*a*b", "*[a]*[a]*[a]*[a]*b*", "*?a*?a*?a*?b*", "*aaaa*aaab*"])
def test_a_path_filter_grows_with_the_path(glob: str):
    def asked(length: int) -> Callable[[], object]:
        return lambda: [protocol.matches(glob, "/" + "a" * length) for _ in range(20)]

    check_growth(asked(1_000), asked(STEP * 1_000))
