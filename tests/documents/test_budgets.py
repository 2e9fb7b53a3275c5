"""Files over their budget fail alone, are explained, and are not read again."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from penstock import Penstock, config
from penstock.queue.job import Job
from tests.pipeline import faulty_parser
from tests.pipeline.sample_documents import pdf
from tests.worker.worker_processes import ROOT

GOOD = 40
BAD = {
    "spin.txt": "ERR_FILE_TIME",
    "native.txt": "ERR_FILE_TIME",
    "hungry.txt": "ERR_FILE_MEMORY",
    "crash.txt": "ERR_PARSER_FAILED",
}


def tree_bytes(root: int) -> int:
    """Resident memory of a process and its descendants. Shared pages count once for each."""
    found, total = [root], 0
    for pid in found:
        with suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return total


class Bench:
    """A folder, an index, and a worker with a journal of parsed files."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "files"
        self.folder.mkdir()
        self._journal = place / "parsed"
        self.peak_bytes = 0
        """Memory of the worker's processes together, as far as it was seen."""
        self.settings = config.load(
            {},
            url=f"sqlite:///{place}/queue.db",
            state_dir=place / "state",
            embedder="hashing",
            sqlite_synchronous="NORMAL",
            max_retries=0,
            file_time_s=0.5,
            file_memory_mb=96,
        )

    def index(self) -> Job:
        values = msgspec.json.encode(config.portable_values(self.settings), enc_hook=str).decode()
        given = [values, str(self.folder), str(self._journal)]
        command = [sys.executable, "-m", "tests.documents.budget_worker", *given]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as worker:
            while worker.poll() is None:
                self.peak_bytes = max(self.peak_bytes, tree_bytes(worker.pid))
                with suppress(subprocess.TimeoutExpired):
                    worker.wait(0.05)
        assert 0 == worker.returncode
        with Penstock(settings=self.settings) as app:
            (newest, *_) = app.jobs(item_type="folder", limit=1)
        return newest

    def parsed(self) -> Counter[str]:
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        self._journal.unlink(missing_ok=True)
        return Counter(lines)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.long
def test_bad_files_cost_themselves_only_and_are_not_read_again(bench: Bench):
    for number in range(GOOD):
        (bench.folder / f"good{number}.txt").write_text(f"honest words of file {number}\n")
    for name in BAD:
        (bench.folder / name).write_text(f"{name.partition('.')[0]} is what the parser does")

    first = bench.index()

    with Penstock(settings=bench.settings) as app:
        files = {Path(job.payload["file_path"]).name: job for job in app.jobs(item_type="file", limit=100)}
        reasons = {name: app.documents.why(str(bench.folder / name)) for name in files}
        found = app.search("honest", limit=100)
    good = {name: job for name, job in files.items() if name not in BAD}
    assert BAD == {name: files[name].error_code for name in BAD}
    assert GOOD == len(good) == len(found)
    assert {("done", 0, 0)} == {(str(job.status), job.retry_count, job.lost_count) for job in good.values()}
    assert {name: ("failed", code) for name, code in BAD.items()} == {
        name: (reasons[name].verdict, reasons[name].cause.partition(":")[0]) for name in BAD
    }
    assert {"indexed"} == {reasons[name].verdict for name in good}
    assert ("failed", len(BAD)) == (str(first.status), first.children_failed)
    assert set(files) == set(bench.parsed())

    second = bench.index()

    assert {} == bench.parsed()
    assert second.result is not None
    assert (len(BAD), GOOD) == (second.result["failed_before"], second.result["unchanged"])

    (bench.folder / "spin.txt").write_text("mended, and honest")
    third = bench.index()

    assert ["spin.txt"] == list(bench.parsed())
    assert "done" == str(third.status)


def test_a_file_that_crashes_its_process_is_tried_twice(bench: Bench):
    (bench.folder / "crash.txt").write_text("crash is what the parser does")
    (bench.folder / "good.txt").write_text("honest words")
    bench.settings = config.load({}, **config.portable_values(bench.settings) | {"max_retries": 3})

    bench.index()

    assert {"crash.txt": 2, "good.txt": 1} == bench.parsed()
    with Penstock(settings=bench.settings) as app:
        reason = app.documents.why(str(bench.folder / "crash.txt"))
    assert ("failed", True) == (reason.verdict, "crashed (SIGSEGV)" in reason.cause)


def test_another_budget_is_another_try(bench: Bench):
    (bench.folder / "hungry.txt").write_text("hungry is what the parser does")
    (bench.folder / "good.txt").write_text("honest words")
    bench.index()
    assert {"hungry.txt", "good.txt"} == set(bench.parsed())

    bench.settings = config.load({}, **config.portable_values(bench.settings) | {"file_memory_mb": 112})
    bench.index()

    assert {"hungry.txt"} == set(bench.parsed())


def test_a_batch_of_pages_may_outlast_the_grace_of_a_cancel(bench: Bench):
    (bench.folder / "pages.pdf").write_bytes(pdf(*[f"honest page {number}" for number in range(40)]))
    bench.settings = config.load({}, **config.portable_values(bench.settings) | {"cancel_grace_s": 0})

    job = bench.index()

    with Penstock(settings=bench.settings) as app:
        reason = app.documents.why(str(bench.folder / "pages.pdf"))
    assert ("done", "indexed", ()) == (str(job.status), reason.verdict, reason.missing), (job, reason)
    # The first pages in the job; the others in one uninterrupted batch, perhaps of the other process.
    parsed = bench.parsed()
    assert 1 == parsed["pages.pdf 33-40"]
    assert parsed["pages.pdf"] in (1, 2)


ALL_MEMORY = {"file_memory_mb": 640, "file_time_s": 2.0}
"""The default memory, and the time to fill it on a busy machine."""


@pytest.mark.long
def test_a_page_with_a_fault_costs_itself_only(bench: Bench):
    """The memory is the default: the large share of it is taken in full by a page."""
    faults = {5: "spin", 36: "crash", 39: "error", 40: "hungry"}
    codes = {5: "ERR_FILE_TIME", 36: "ERR_PARSER_FAILED", 39: "ERR_PARSER_FAILED", 40: "ERR_FILE_MEMORY"}
    pages = [faults.get(number, f"honest page {number}") for number in range(1, 42)]
    (bench.folder / "pages.pdf").write_bytes(faulty_parser.document(*pages))
    for number in range(GOOD):
        (bench.folder / f"good{number}.txt").write_text(f"honest words of file {number}\n")
    bench.settings = config.load({}, **config.portable_values(bench.settings) | ALL_MEMORY)

    bench.index()

    with Penstock(settings=bench.settings) as app:
        source = app.documents.source(str(bench.folder / "pages.pdf"))
        assert source.published_id is not None
        states = app.documents.pages(source.published_id)
        found = app.search("honest", limit=100)
    errors = {state.number: state.error.partition(":")[0] for state in states if state.error}
    # Three pages that end their process end the document, in the process that counts them.
    assert codes == {number: errors.get(number) for number in codes}
    assert set(errors) <= {*codes, 41}
    assert {f"good{number}.txt" for number in range(GOOD)} <= {Path(hit.path).name for hit in found}
    assert bench.peak_bytes < 1 << 30


@pytest.mark.long
def test_a_fault_while_a_page_is_recognized_costs_that_page_only(bench: Bench):
    """With the default memory, of which a page takes all there is."""
    codes = {2: "ERR_FILE_TIME", 4: "ERR_PARSER_FAILED", 6: "ERR_FILE_MEMORY"}
    words = ["Water", "spin", "Wheel", "crash", "Stone", "hungry", "Flour"]
    pages = [f"{faulty_parser.SCAN}{word}" for word in words] + ["honest page 8"]
    path = bench.folder / "scan.pdf"
    path.write_bytes(faulty_parser.document(*pages))
    for number in range(GOOD):
        (bench.folder / f"good{number}.txt").write_text(f"honest words of file {number}\n")
    bench.settings = config.load({}, **config.portable_values(bench.settings) | ALL_MEMORY)

    bench.index()

    with Penstock(settings=bench.settings) as app:
        reason = app.documents.why(str(path))
        honest = app.search("honest", limit=100, mode="keyword")
        found = {hit.page for word in words for hit in app.search(word, mode="keyword")}
    assert "partial" == reason.verdict
    assert [f"page {number}: {code}" for number, code in codes.items()] == [
        ":".join(part.split(":")[:2]) for part in reason.missing
    ]
    assert {1, 3, 5, 7} == found
    assert GOOD + 1 == len(honest)
    assert bench.peak_bytes < 1 << 30
