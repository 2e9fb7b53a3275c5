"""The sandbox: a child process for parsers that may crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import (
    DocumentDamaged,
    DocumentEncrypted,
    DocumentTooLarge,
    MemoryBudgetExceeded,
    TimeBudgetExceeded,
    TransientFailure,
)
from penstock.interpreter import KEPT_VARIABLES, ONE_THREAD
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import Content, ExtractLimits
from penstock.pipeline.extract.sandbox import process as sandbox_process
from penstock.pipeline.extract.sandbox import sandbox as sandbox_module
from penstock.pipeline.extract.sandbox.sandbox import Sandbox
from penstock.queue import retry
from tests.pipeline.sample_documents import LOCKED, docx, paragraph, pdf

WORDS = Content("a.pdf", pdf("words", "more"))


def endless() -> Content:
    """Every stroke becomes an object: seconds of work and much memory from one page."""
    return Content("a.pdf", pdf(b"0 0 m 1 1 l S " * 7_000_000))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def child_of(sandbox: Sandbox) -> int:
    assert sandbox._child is not None
    return sandbox._child.pid


def test_the_same_pages_come_out_of_the_box(sandbox: Sandbox):
    word = Content("a.docx", docx(paragraph("words")))

    assert extract(WORDS) == sandbox.extract(WORDS)
    assert extract(word) == sandbox.extract(word)
    assert [2] == [page.number for page in sandbox.extract(WORDS, pages=range(2, 3)).pages]


def test_one_child_serves_many_files(sandbox: Sandbox):
    sandbox.extract(WORDS)
    first = child_of(sandbox)
    sandbox.extract(WORDS)

    assert first == child_of(sandbox)


def test_text_needs_no_child(sandbox: Sandbox):
    assert "words" == sandbox.extract(Content("a.md", b"words")).pages[0].text
    assert sandbox._child is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (Content("a.pdf", pdf("secret", encrypt=LOCKED)), DocumentEncrypted),
        (Content("a.pdf", b"%PDF-1.4 and no more"), DocumentDamaged),
        (Content("a.docx", docx()[:100]), DocumentDamaged),
    ],
)
def test_refusals_come_through_with_their_type(sandbox: Sandbox, content: Content, expected: type[Exception]):
    with pytest.raises(expected) as refusal:
        sandbox.extract(content)

    assert "permanent" == retry.classify(refusal.value).kind
    assert "words" == sandbox.extract(WORDS).pages[0].text


def test_a_file_too_large_is_not_sent():
    with Sandbox(ExtractLimits(file_bytes=10)) as sandbox, pytest.raises(DocumentTooLarge):
        sandbox.extract(WORDS)


def test_a_child_that_died_idle_is_replaced(sandbox: Sandbox):
    sandbox.extract(WORDS)
    first = child_of(sandbox)
    os.kill(first, signal.SIGKILL)

    assert "words" == sandbox.extract(WORDS).pages[0].text
    assert first != child_of(sandbox)


def test_a_zygote_that_died_idle_is_replaced(sandbox: Sandbox):
    sandbox.extract(WORDS)
    assert sandbox._zygote is not None
    first = sandbox._zygote._process
    first.kill()
    first.wait()

    assert "words" == sandbox.extract(WORDS).pages[0].text
    assert first is not sandbox._zygote._process


def test_a_zygote_that_cannot_start_is_no_fault_of_the_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_process, "COMMAND", "raise SystemExit(3)")

    with Sandbox() as sandbox, pytest.raises(TransientFailure, match="status 3"):
        sandbox.extract(WORDS)


def test_too_much_cpu_time():
    with Sandbox(
        ExtractLimits(parser_seconds=0.1, parser_memory_bytes=8 << 30, file_bytes=1 << 30)
    ) as sandbox:
        document = endless()
        with pytest.raises(TimeBudgetExceeded, match="more than"):
            sandbox.extract(document)
        assert "words" == sandbox.extract(WORDS).pages[0].text


def test_a_slow_start_of_the_child_costs_the_file_nothing(monkeypatch: pytest.MonkeyPatch):
    """The start takes longer than the parser may."""
    start = f"import time; time.sleep({sandbox_process.SLOWEST} * 0.2); {sandbox_process.COMMAND}"
    monkeypatch.setattr(sandbox_process, "COMMAND", start)

    with Sandbox(ExtractLimits(parser_seconds=0.1)) as sandbox:
        assert "words" == sandbox.extract(WORDS).pages[0].text


def test_a_zygote_that_never_starts_is_no_fault_of_the_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_process, "START_S", 0.01)
    monkeypatch.setattr(sandbox_process, "COMMAND", "import sys; sys.stdin.read()")

    with Sandbox() as sandbox, pytest.raises(TimeoutError, match="did not") as failure:
        sandbox.extract(WORDS)

    assert "transient" == retry.classify(failure.value).kind


def test_too_much_memory():
    document = endless()
    with Sandbox(ExtractLimits(parser_memory_bytes=300 * 1024 * 1024, file_bytes=1 << 30)) as sandbox:
        with pytest.raises(MemoryBudgetExceeded, match="300 MiB"):
            sandbox.extract(document)
        assert "words" == sandbox.extract(WORDS).pages[0].text


def test_children_are_replaced_after_many_files(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_module, "FILES_PER_CHILD", 2)
    children = []
    for _ in range(5):
        sandbox.extract(WORDS)
        children.append(child_of(sandbox))

    assert 3 == len(set(children))


def test_threads_take_turns(sandbox: Sandbox):
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(sandbox.extract, [WORDS] * 12))

    assert [extract(WORDS)] * 12 == results


def test_no_child_stays_behind():
    with Sandbox() as sandbox:
        sandbox.extract(WORDS)
        child = child_of(sandbox)

    assert not Path(f"/proc/{child}").exists()


def test_variables_of_python_do_not_reach_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
):
    for name in ("sitecustomize", "usercustomize", "types", "msgspec", "pypdfium2"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'mark')!r}, 'w').close()\nraise OSError\n"
        )
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONPLATLIBDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert extract(WORDS) == sandbox.extract(WORDS)

    assert not (tmp_path / "mark").exists()


def test_the_child_gets_no_passwords_from_the_environment(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox):
    for name in ("PENSTOCK_URL", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "HOME", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")

    assert extract(WORDS) == sandbox.extract(WORDS)

    environment = Path(f"/proc/{child_of(sandbox)}/environ").read_bytes()
    assert b"hunter2" not in environment
    names = {variable.partition(b"=")[0].decode() for variable in environment.split(b"\0") if variable}
    assert {"LC_TIME", "PATH"} <= names
    assert names <= {*KEPT_VARIABLES, *ONE_THREAD} | {name for name in names if name.startswith("LC_")}


def test_its_processes_give_way_to_the_one_that_asks():
    with Sandbox(niceness=3) as sandbox:
        sandbox.extract(WORDS)

        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert own + 3 == os.getpriority(os.PRIO_PROCESS, child_of(sandbox))
