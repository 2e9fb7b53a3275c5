"""The child process that reads what may kill its reader."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import retry
from penstock.errors import (
    DocumentDamaged,
    DocumentEncrypted,
    DocumentTooLarge,
    MemoryBudgetExceeded,
    ParserFailed,
    TimeBudgetExceeded,
)
from penstock.pipeline.extract import sandbox
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractLimits
from penstock.pipeline.extract.sandbox import Sandbox
from tests.pipeline.sample_documents import LOCKED, docx, paragraph, pdf

WORDS = Content("a.pdf", pdf("words", "more"))
ENDLESS = Content("a.pdf", pdf(b"0 0 m 1 1 l S " * 7_000_000))
"""Every stroke becomes an object: seconds of work and much memory from one page."""


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def child_of(box: Sandbox) -> int:
    assert box._child is not None
    return box._child._process.pid


def test_the_same_pages_come_out_of_the_box(box: Sandbox):
    word = Content("a.docx", docx(paragraph("words")))

    assert extract(WORDS) == box.extract(WORDS)
    assert extract(word) == box.extract(word)
    assert [2] == [page.number for page in box.extract(WORDS, pages=range(2, 3)).pages]


def test_one_child_serves_many_files(box: Sandbox):
    box.extract(WORDS)
    first = child_of(box)
    box.extract(WORDS)

    assert first == child_of(box)


def test_text_needs_no_child(box: Sandbox):
    assert "words" == box.extract(Content("a.md", b"words")).pages[0].text
    assert box._child is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (Content("a.pdf", pdf("secret", encrypt=LOCKED)), DocumentEncrypted),
        (Content("a.pdf", b"%PDF-1.4 and no more"), DocumentDamaged),
        (Content("a.docx", docx()[:100]), DocumentDamaged),
    ],
)
def test_refusals_come_through_with_their_type(box: Sandbox, content: Content, expected: type[Exception]):
    with pytest.raises(expected) as refusal:
        box.extract(content)

    assert "permanent" == retry.classify(refusal.value).kind
    assert "words" == box.extract(WORDS).pages[0].text


def test_a_file_too_large_is_not_sent():
    with Sandbox(ExtractLimits(file_bytes=10)) as box, pytest.raises(DocumentTooLarge):
        box.extract(WORDS)


def test_a_child_that_died_idle_is_replaced(box: Sandbox):
    box.extract(WORDS)
    first = child_of(box)
    os.kill(first, signal.SIGKILL)

    assert "words" == box.extract(WORDS).pages[0].text
    assert first != child_of(box)


def test_a_crash_costs_only_its_file(box: Sandbox, monkeypatch: pytest.MonkeyPatch):
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    with monkeypatch.context() as patched:
        patched.setattr(sandbox, "_COMMAND", crash)
        with pytest.raises(ParserFailed, match="SIGSEGV"):
            box.extract(WORDS)

    assert "words" == box.extract(WORDS).pages[0].text


def test_too_much_cpu_time():
    with Sandbox(ExtractLimits(parser_seconds=0.1, parser_memory_bytes=8 << 30, file_bytes=1 << 30)) as box:
        with pytest.raises(TimeBudgetExceeded, match="more than"):
            box.extract(ENDLESS)
        assert "words" == box.extract(WORDS).pages[0].text


def test_a_child_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "_COMMAND", "import sys; sys.stdin.read()")

    with (
        Sandbox(ExtractLimits(parser_seconds=0)) as box,
        pytest.raises(TimeBudgetExceeded, match="more than"),
    ):
        box.extract(WORDS)


def test_too_much_memory():
    with Sandbox(ExtractLimits(parser_memory_bytes=300 * 1024 * 1024, file_bytes=1 << 30)) as box:
        with pytest.raises(MemoryBudgetExceeded, match="300 MiB"):
            box.extract(ENDLESS)
        assert "words" == box.extract(WORDS).pages[0].text


def test_children_are_replaced_after_many_files(box: Sandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "FILES_PER_CHILD", 2)
    children = []
    for _ in range(5):
        box.extract(WORDS)
        children.append(child_of(box))

    assert 3 == len(set(children))


def test_threads_take_turns(box: Sandbox):
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(box.extract, [WORDS] * 12))

    assert [extract(WORDS)] * 12 == results


def test_no_child_stays_behind():
    with Sandbox() as box:
        box.extract(WORDS)
        child = child_of(box)

    assert not Path(f"/proc/{child}").exists()


def test_variables_of_python_do_not_reach_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: Sandbox
):
    for name in ("sitecustomize", "usercustomize", "types", "msgspec", "pypdfium2"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'mark')!r}, 'w').close()\nraise OSError\n"
        )
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONPLATLIBDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert extract(WORDS) == box.extract(WORDS)

    assert not (tmp_path / "mark").exists()
