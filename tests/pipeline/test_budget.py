"""Budgets of files: interrupted when they take too long, refused the memory they may not have."""

from __future__ import annotations

import fcntl
import re
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import MemoryBudgetExceeded, TimeBudgetExceeded
from penstock.pipeline.budget import FileLimiter, MemoryInUse, MemoryShare
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.embed.hashing import HashingEmbedder
from penstock.pipeline.extract.protocol import Content, Limits
from penstock.pipeline.recipe import CUT_HEADINGS, LONGEST_HEADING, Recipe
from tests.pipeline.making import pdf

MIB = 1 << 20
LIMIT = 1 << 40


@pytest.fixture
def limiter(tmp_path: Path) -> Iterator[FileLimiter]:
    limiter = FileLimiter(MemoryShare(16 * MIB, 64 * MIB, str(tmp_path / "lock")))
    yield limiter
    limiter.close()


def allocate(mib: int) -> int:
    return sum(map(len, ["x" * MIB for _ in range(mib)]))


def spin(_: int | None) -> None:
    while True:
        try:
            sum(range(1000))
        except Exception:  # noqa: S112 - parsers do that
            continue


def unlimited() -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    return soft == hard and signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_python_code_is_interrupted_even_if_it_catches_exceptions(limiter: FileLimiter):
    with pytest.raises(TimeBudgetExceeded, match=r"more than 0\.05 s"):
        limiter.run(0.05, 10, LIMIT, spin)

    assert unlimited()


def test_a_regular_expression_is_interrupted(limiter: FileLimiter):
    with pytest.raises(TimeBudgetExceeded):
        limiter.run(0.05, 10, LIMIT, lambda _: re.match(r"(a*)*b", "a" * 40))


def test_a_budget_is_the_files_own(limiter: FileLimiter):
    """Ten that take half of it each."""

    def half(_: int | None) -> int:
        return sum(range(1_000_000))

    assert [sum(range(1_000_000))] * 10 == [limiter.run(5.0, 10, LIMIT, half) for _ in range(10)]
    assert unlimited()


def test_memory_beyond_the_large_share_is_refused(limiter: FileLimiter):
    with pytest.raises(MemoryBudgetExceeded, match="64 MiB"):
        limiter.run(10.0, 10, LIMIT, lambda _: allocate(200))

    assert unlimited()
    assert 200 * MIB == allocate(200)


def test_a_small_file_that_needs_more_gets_the_large_share(limiter: FileLimiter):
    given = []

    def work(memory_bytes: int | None) -> int:
        given.append(memory_bytes)
        return allocate(40)

    assert 40 * MIB == limiter.run(10.0, 10, LIMIT, work)
    assert [16 * MIB, 64 * MIB] == given


def test_one_large_file_at_a_time(limiter: FileLimiter, tmp_path: Path):
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MemoryInUse):
            limiter.run(10.0, 50 * MIB, LIMIT, lambda _: 1)
        assert 1 == limiter.run(10.0, 10, LIMIT, lambda _: 1)

    assert 1 == limiter.run(10.0, 50 * MIB, LIMIT, lambda _: 1)


def test_processes_together_stay_within_the_setting(tmp_path: Path):
    for processes in (1, 2, 8, 100):
        share = MemoryShare.of(640, processes, tmp_path)
        assert 640 * MIB == share.large_bytes + processes * share.small_bytes
        assert share.large_bytes >= 320 * MIB


def test_in_a_thread_nothing_is_enforced(limiter: FileLimiter):
    """Neither signals nor limits of the process are a thread's to use; see decision 0051."""
    made = []
    thread = threading.Thread(
        target=lambda: made.append(limiter.run(0.001, 10, 1, lambda memory: (memory, sum(range(10**6)))))
    )
    thread.start()
    thread.join()

    assert [(None, sum(range(10**6)))] == made


@pytest.fixture
def recipe() -> Iterator[Recipe]:
    recipe = Recipe(HashingEmbedder(), limits=Limits(parser_seconds=0.01))
    yield recipe
    recipe.close()


def test_an_honest_file_beyond_its_time_fails_alone(recipe: Recipe):
    honest = Content("a.md", b"# Heading\n\nSome words.\n\n" * 40_000)

    with pytest.raises(TimeBudgetExceeded):
        recipe.draft(honest, ChunkSizes())
    assert 1 == len(recipe.draft(Content("b.md", b"words"), ChunkSizes()).chunks)


def test_a_range_of_heavy_pages_ends_early():
    heavy = pdf(*[b"BT /F1 12 Tf (words) Tj ET " + b"0 0 m 1 1 l S " * 20_000] * 4)
    recipe = Recipe(HashingEmbedder(), limits=Limits(batch_seconds=0.0))
    try:
        draft = recipe.draft(Content("a.pdf", heavy), ChunkSizes(), pages=range(2, 5))
        whole = recipe.draft(Content("a.pdf", heavy), ChunkSizes())
    finally:
        recipe.close()

    assert ([2], 4) == ([page.number for page in draft.pages], draft.page_count)
    assert [1, 2, 3, 4] == [page.number for page in whole.pages]


def test_long_headings_are_not_repeated_in_every_chunk():
    recipe = Recipe(HashingEmbedder())
    text = "# " + "x" * 100_000 + "\n\n" + "Some words here. \n\n" * 5_000

    draft = recipe.draft(Content("a.md", text.encode()), ChunkSizes())

    assert LONGEST_HEADING + 1 == max(len(chunk.heading_path) for chunk in draft.chunks)
    assert (CUT_HEADINGS,) == draft.warnings
