"""File budgets: files are interrupted after their CPU time and refused more memory."""

from __future__ import annotations

import fcntl
import re
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import DocumentDamaged, MemoryBudgetExceeded, NoText, TimeBudgetExceeded
from penstock.pipeline import budget
from penstock.pipeline.budget import FileLimiter, MemoryInUse, MemoryShare, Work, memory_exceeded
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.extract.protocol import Content, ExtractLimits
from penstock.pipeline.extract.sandbox.messages import ParseRequest
from penstock.pipeline.extract.sandbox.process import SandboxChild
from penstock.pipeline.pipeline import Pipeline
from tests.pipeline.sample_documents import PIXEL, pdf

MIB = 1 << 20


@pytest.fixture
def limiter(tmp_path: Path) -> Iterator[FileLimiter]:
    limiter = FileLimiter(MemoryShare(16 * MIB, 64 * MIB, str(tmp_path / "lock")))
    yield limiter
    limiter.close()


def allocate(mib: int) -> int:
    return sum(map(len, ["x" * MIB for _ in range(mib)]))


def only_here(call: Callable[[int | None], Any]) -> Work[Any]:
    """Work with a mark if the sandbox was used."""
    return Work(call, lambda memory_bytes: ("sandbox", memory_bytes))


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
        limiter.run(0.05, 10, only_here(spin))

    assert unlimited()


def test_a_regular_expression_is_interrupted(limiter: FileLimiter):
    with pytest.raises(TimeBudgetExceeded):
        limiter.run(0.05, 10, only_here(lambda _: re.match(r"(a*)*b", "a" * 40)))


def test_a_budget_is_the_files_own(limiter: FileLimiter):
    """Ten files with half the budget each."""

    def half(_: int | None) -> int:
        return sum(range(1_000_000))

    assert [sum(range(1_000_000))] * 10 == [limiter.run(5.0, 10, only_here(half)) for _ in range(10)]
    assert unlimited()


def test_a_small_file_that_needs_more_memory_goes_to_the_sandbox(limiter: FileLimiter):
    assert ("sandbox", 64 * MIB) == limiter.run(10.0, 10, only_here(lambda _: allocate(200)))

    assert unlimited()
    assert 200 * MIB == allocate(200)


def test_a_library_may_have_errors_of_its_own_for_want_of_memory(limiter: FileLimiter):
    def work(_: int | None) -> None:
        try:
            allocate(200)
        except MemoryError:
            raise DocumentDamaged("cannot be parsed") from None

    assert ("sandbox", 64 * MIB) == limiter.run(10.0, 10, only_here(work))
    with pytest.raises(DocumentDamaged):
        limiter.run(10.0, 10, only_here(lambda _: (_ for _ in ()).throw(DocumentDamaged("really"))))


def test_one_large_file_at_a_time(limiter: FileLimiter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(budget, "WAIT_S", 0.0)
    work = only_here(lambda _: "here")
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MemoryInUse):
            limiter.run(10.0, 50 * MIB, work)
        assert "here" == limiter.run(10.0, 10, work)

    assert ("sandbox", 64 * MIB) == limiter.run(10.0, 50 * MIB, work)


def test_processes_together_stay_within_the_setting(tmp_path: Path):
    for processes in (1, 2, 8, 100):
        share = MemoryShare.of(640, processes, tmp_path)
        assert 640 * MIB == share.large_bytes + processes * share.small_bytes
        assert share.large_bytes >= 320 * MIB


def other(tmp_path: Path) -> FileLimiter:
    """The limiter of another process: same small share, same pool."""
    return FileLimiter(MemoryShare(16 * MIB, 96 * MIB, str(tmp_path / "pool")))


def test_pages_to_be_recognized_share_the_memory_with_large_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(budget, "WAIT_S", 0.0)
    first, second, third = other(tmp_path), other(tmp_path), other(tmp_path)
    freed: list[str] = []
    large = only_here(lambda _: None)

    # 80 MiB: the small share and two of the three pieces of 32 MiB.
    assert 80 * MIB == first.run_recognition(80 * MIB, lambda memory: memory, lambda: freed.append("first"))
    with pytest.raises(MemoryInUse):
        second.run_recognition(80 * MIB, lambda memory: memory, lambda: None)
    with pytest.raises(MemoryInUse):
        third.run_isolated(50 * MIB, large)
    assert 48 * MIB == second.run_recognition(48 * MIB, lambda memory: memory, lambda: None)

    # The models stay loaded for the next page, and are freed before other work of the process.
    first.run_recognition(80 * MIB, lambda memory: memory, lambda: freed.append("again"))
    assert [] == freed
    assert "here" == first.run(10.0, 10, only_here(lambda _: "here"))
    assert ["first"] == freed
    second.rest()
    assert ("sandbox", 96 * MIB) == third.run_isolated(50 * MIB, large)
    for limiter in (first, second, third):
        limiter.close()


def test_isolated_files_need_the_large_share_only_if_they_exceed_the_small_one(tmp_path: Path):
    limiter = other(tmp_path)
    tried: list[int | None] = []

    def too_large(memory_bytes: int | None) -> None:
        tried.append(memory_bytes)
        raise memory_exceeded(16 * MIB)

    with (tmp_path / "pool").open("w") as elsewhere:
        fcntl.flock(elsewhere, fcntl.LOCK_EX)
        assert 16 * MIB == limiter.run_isolated(1_000, only_here(lambda memory: memory))
    assert ("sandbox", 96 * MIB) == limiter.run_isolated(1_000, only_here(too_large))
    assert [16 * MIB] == tried
    limiter.close()


def test_a_page_is_given_no_more_memory_than_there_is(tmp_path: Path):
    limiter = other(tmp_path)
    assert 112 * MIB == limiter.most_bytes
    assert 112 * MIB == limiter.run_recognition(999 * MIB, lambda memory: memory, lambda: None)
    limiter.close()


def test_pages_to_be_recognized_do_not_keep_out_a_large_file(tmp_path: Path):
    """A process that recognizes page after page gives way to one that waits."""
    pages, files = other(tmp_path), other(tmp_path)
    started, answers = threading.Event(), []

    def wait_for_all() -> None:
        answers.append(files.run_isolated(50 * MIB, only_here(lambda _: None)))

    waiting = threading.Thread(target=wait_for_all)

    def page(_: int) -> None:
        if not started.is_set():
            waiting.start()
            started.set()

    while waiting.is_alive() or not started.is_set():
        with suppress(MemoryInUse):
            pages.run_recognition(80 * MIB, page, lambda: None)

    assert [("sandbox", 96 * MIB)] == answers
    pages.close()
    files.close()


def test_pages_of_a_large_document_keep_the_memory_for_the_next_ones(tmp_path: Path):
    first, second = other(tmp_path), other(tmp_path)
    done: list[object] = []

    def in_small_share(_: int | None) -> None:
        done.append("small")
        raise MemoryError

    work = Work(in_small_share, done.append)

    for _ in range(3):
        first.run_pages(10.0, 1, work, lambda: done.append("freed"))
    # At once, so that the first one, which opened the document, goes on with it.
    with pytest.raises(MemoryInUse, match="pages of a large document"):
        second.run_pages(10.0, 1, work, lambda: None)
    first.pause()
    first.run_pages(10.0, 1, work, lambda: None)
    first.run(10.0, 10, only_here(lambda _: None))
    second.run_pages(10.0, 1, work, lambda: None)

    assert ["small", *[96 * MIB] * 3, "small", 96 * MIB, "freed", 96 * MIB] == done
    first.close()
    second.close()


def test_pages_of_a_large_document_do_not_keep_out_a_large_file(tmp_path: Path):
    pages, files = other(tmp_path), other(tmp_path)
    freed: list[str] = []

    def in_small_share(_: int | None) -> None:
        raise MemoryError

    work = Work(in_small_share, lambda _: None)

    pages.run_pages(10.0, 1, work, lambda: freed.append("freed"))
    with (tmp_path / "pool.turn").open() as waiting:
        fcntl.flock(waiting, fcntl.LOCK_EX)
        pages.run_pages(10.0, 1, work, lambda: None)

    assert ["freed"] == freed
    assert ("sandbox", 96 * MIB) == files.run_isolated(50 * MIB, only_here(lambda _: None))
    pages.close()
    files.close()


def test_a_large_document_is_sent_to_the_sandbox_once_for_all_its_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sent: list[tuple[int, bool]] = []
    begin = SandboxChild._begin

    def counted(child: SandboxChild, request: ParseRequest, data: bytes) -> None:
        sent.append((request.memory_bytes, request.resumed))
        begin(child, request, data)

    monkeypatch.setattr(SandboxChild, "_begin", counted)
    small, large = 16 * MIB, 128 * MIB
    pipeline = Pipeline(HashingEmbedder(), memory=MemoryShare(small, large, str(tmp_path / "lock")))
    heavy = b"BT /F1 12 Tf (words) Tj ET " + b"0 0 m 1 1 l S " * 150_000
    content = Content("a.pdf", pdf(*[heavy] * 4))
    try:
        drafts = [
            pipeline.draft(content, ChunkSizes(), pages=range(number, number + 1)) for number in range(1, 5)
        ]
    finally:
        pipeline.close()

    assert [1, 2, 3, 4] == [page.number for draft in drafts for page in draft.pages]
    left = large - 2 * len(content.data)
    assert [(small, False), (left, False), *[(left, True)] * 3] == sent


def test_in_a_thread_nothing_is_enforced(limiter: FileLimiter):
    """A thread can use neither signals nor process limits; see decision 0024."""
    made = []
    thread = threading.Thread(
        target=lambda: made.append(
            limiter.run(0.001, 50 * MIB, only_here(lambda memory: (memory, sum(range(10**6)))))
        )
    )
    thread.start()
    thread.join()

    assert [(None, sum(range(10**6)))] == made


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    pipeline = Pipeline(HashingEmbedder(), limits=ExtractLimits(parser_seconds=0.01))
    yield pipeline
    pipeline.close()


def test_an_honest_file_beyond_its_time_fails_alone(pipeline: Pipeline):
    honest = Content("a.md", b"# Heading\n\nSome words.\n\n" * 40_000)

    with pytest.raises(TimeBudgetExceeded):
        pipeline.draft(honest, ChunkSizes())
    assert 1 == len(pipeline.draft(Content("b.md", b"words"), ChunkSizes()).chunks)


def large_pipeline(tmp_path: Path, memory_mb: int) -> Pipeline:
    """A pipeline for which every file is large."""
    share = MemoryShare(0, memory_mb * MIB, str(tmp_path / "lock"))
    return Pipeline(HashingEmbedder(), limits=ExtractLimits(parser_seconds=10.0), memory=share)


def test_the_sandbox_makes_the_same_of_a_file(tmp_path: Path):
    plain, large = Pipeline(HashingEmbedder()), large_pipeline(tmp_path, 128)
    texts = [
        Content("a.md", b"# One\n\nwords\n\n# Two\n\n" + b"more words. " * 900),
        Content("b.pdf", pdf("c")),
    ]
    try:
        for content in texts:
            assert plain.draft(content, ChunkSizes()) == large.draft(content, ChunkSizes())
        with pytest.raises(NoText):
            large.draft(Content("c.pdf", pdf(PIXEL)), ChunkSizes())
    finally:
        plain.close()
        large.close()


@pytest.mark.parametrize("suffix", [pytest.param("html", marks=pytest.mark.long), "md", "json"])
def test_a_file_beyond_the_large_share_fails_for_its_memory(tmp_path: Path, suffix: str):
    pipeline = large_pipeline(tmp_path, 48)
    part = {"html": b"<p>ab</p>", "md": b"# a\n\n", "json": b'["a"],'}[suffix]
    try:
        with pytest.raises(MemoryBudgetExceeded):
            pipeline.draft(Content(f"a.{suffix}", b"[" + part * (15 * MIB // len(part))), ChunkSizes())
    finally:
        pipeline.close()


def test_a_range_of_heavy_pages_ends_early():
    heavy = pdf(*[b"BT /F1 12 Tf (words) Tj ET " + b"0 0 m 1 1 l S " * 20_000] * 4)
    pipeline = Pipeline(HashingEmbedder(), limits=ExtractLimits(batch_seconds=0.0))
    try:
        draft = pipeline.draft(Content("a.pdf", heavy), ChunkSizes(), pages=range(2, 5))
        whole = pipeline.draft(Content("a.pdf", heavy), ChunkSizes())
    finally:
        pipeline.close()

    assert ([2], 4) == ([page.number for page in draft.pages], draft.page_count)
    assert [1, 2, 3, 4] == [page.number for page in whole.pages]
