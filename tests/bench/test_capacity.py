"""Measurements of capacity: small runs, rates, tables, charts and the page."""

from __future__ import annotations

import tempfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.capacity import __main__ as capacity
from bench.capacity import jobs, page, tables
from bench.capacity.call_cost import Cost
from bench.capacity.chart import LinePanel, Series, drawn
from bench.capacity.document_calls import Measured
from bench.capacity.document_texts import CHUNKS_EACH, DocumentTexts
from bench.capacity.figures import Adding, Drained, HostRun, JobRun, Report, read_report, write_report
from bench.capacity.jobs import rates
from bench.capacity.process_memory import disk_mb
from bench.peers.machine import Machine
from bench.stores import fresh_directory

MACHINE = Machine(date="2026-01-01", system="L", cores=2, memory_gb=8, python="3.11", servers={}, busy=1.0)
COST = Cost(cpu_ms=2.0, median_ms=3.0, largest_ms=4.0)
SVG = "{http://www.w3.org/2000/svg}"


def sample(piece: int, jobs: int, cpu_s: float) -> Drained:
    return Drained(
        piece=piece,
        at_s=0.0,
        jobs=jobs,
        worker_cpu_s=cpu_s,
        server_cpu_s=0.0,
        worker_mb=90.0,
        server_mb=0.0,
        disk_mb=5.0,
    )


def job_run(**values: object) -> JobRun:
    added = Adding(
        jobs=100, added=100, seconds=1.0, client_cpu_s=0.001, server_cpu_s=0.0, server_mb=0.0, disk_mb=3.0
    )
    run = JobRun(engine="sqlite", jobs=100, processes=2, adding=[added])
    for name, value in values.items():
        setattr(run, name, value)
    return run


def report() -> Report:
    drained = [sample(0, 0, 0.0), sample(0, 100, 0.01)]
    catalog = Measured(engine="sqlite", chunks=1_000, documents=100, waiting=10, calls={"status": COST})
    return Report(
        machine=MACHINE,
        job_runs=[
            job_run(drained=drained, rates=[100.0, 50.0], waiting={100: {"claim 100, give back": COST}})
        ],
        catalogs=[catalog],
        host_runs=[
            HostRun(hosts=1, connections=4, pickup_ms=[2.0], waits={"Lock: tuple": 0.25, "running": 0.75})
        ],
    )


def test_rates_are_those_of_each_part_of_a_drain_without_the_pauses_between_runs():
    steps = [0.01] * 100 + [3_600.0] + [0.02] * 100
    found = rates(np.cumsum([1.0, *steps]))

    assert 20 == len(found)
    assert [100.0] * 9 == pytest.approx(found[:9])
    assert [50.0] * 9 == pytest.approx(found[-9:])


def test_cpu_time_of_a_drain_leaves_out_what_happened_between_runs():
    drained = [sample(0, 0, 5.0), sample(0, 100, 6.0), sample(1, 200, 1.0), sample(1, 300, 2.0)]

    assert (10_000.0, 0.0) == tables.drain_cpu_us(job_run(drained=drained))


def test_of_two_runs_of_an_engine_the_later_one_counts_and_ends_of_its_pieces_stay():
    drained = [sample(piece, 100 * piece + at, at) for piece in (0, 1) for at in range(100)]
    later = Report(machine=MACHINE, job_runs=[job_run(drained=drained)])

    (run,) = page.joined([report(), later]).job_runs

    assert len(run.drained) < 30
    assert {(0, 0), (0, 99), (1, 100), (1, 199)} <= {(each.piece, each.jobs) for each in run.drained}
    assert tables.drain_cpu_us(job_run(drained=drained)) == tables.drain_cpu_us(run)


def test_jobs_of_a_store_that_is_gone_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its jobs would be waited for without end."""
    report = read_report(tmp_path / "report.json")
    report.job_runs += [JobRun(engine=each, jobs=1_000, processes=2) for each in ("sqlite", "redis")]
    write_report(tmp_path / "report.json", report)
    monkeypatch.setattr(jobs.JobCapacity, "complete", lambda self: self._write() or True)

    assert 0 == jobs.main(["sqlite", "--jobs=20", f"--dir={tmp_path}", f"--json={tmp_path / 'report.json'}"])

    found = {each.engine: each.jobs for each in read_report(tmp_path / "report.json").job_runs}
    assert {"sqlite": 20, "redis": 1_000} == found


def test_lines_are_drawn_on_one_scale_and_gaps_are_left_out():
    svg = drawn(
        "T", "n", [LinePanel("p", ["1", "2", "3"], [Series("a", [0.0, None, 4.0]), Series("b", [2.0] * 3)])]
    )

    lines = [each.attrib["points"].split() for each in ElementTree.fromstring(svg).iter(f"{SVG}polyline")]
    heights = [[float(point.partition(",")[2]) for point in line] for line in lines]
    assert [2, 3] == [len(line) for line in lines]
    assert heights[1][0] == pytest.approx((heights[0][0] + heights[0][1]) / 2)


def test_the_page_has_a_section_for_every_table(tmp_path: Path):
    copy = tmp_path / "capacity.md"
    copy.write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")

    page.write(report(), copy)

    text = copy.read_text(encoding="utf-8")
    assert "| SQLite, 100 jobs | 10 + 0 | 100 | 0.50 | 100 + 0 | 90 | – | 3 | 5 |" in text
    assert "| drain: active sessions that wait for a lock | 25% |" in text
    assert "| status | 2 |" in text
    for path in sorted((tmp_path / "charts").iterdir()):
        ElementTree.parse(path)
        assert f"charts/{path.name}" in text


def test_the_page_shows_the_report_beside_it(tmp_path: Path):
    copy = tmp_path / "capacity.md"
    copy.write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")

    page.write(read_report(page.REPORT), copy)

    assert page.PAGE.read_text(encoding="utf-8") == copy.read_text(encoding="utf-8")


def test_a_document_is_the_same_whenever_it_is_made():
    texts = DocumentTexts(20)
    first, second = texts.documents(3, 2)

    (again,) = texts.documents(4, 1)
    assert [chunk.text for chunk in second.pages[0].chunks or ()] == [
        chunk.text for chunk in again.pages[0].chunks or ()
    ]
    assert CHUNKS_EACH == len({chunk.text_hash for chunk in first.pages[0].chunks or ()})
    assert first.path != second.path


def test_disk_counts_blocks_of_files(tmp_path: Path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(b"x" * 2**20)

    assert 1.0 == pytest.approx(disk_mb(tmp_path), abs=0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("part", "engine"),
    [("jobs", "sqlite"), ("jobs", "redis"), ("documents", "sqlite"), ("hosts", "postgres")],
)
def test_a_quick_run_measures_its_part_and_removes_its_stores(
    tmp_path: Path, part: str, engine: str, capsys: pytest.CaptureFixture[str]
):
    wanted = ["--quick", f"--only={part}", f"--engine={engine}", f"--json={tmp_path / 'report.json'}"]
    with fresh_directory(Path(tempfile.gettempdir())) as stores:
        # The user of the PostgreSQL server has to get there.
        stores.chmod(0o755)
        capacity.main([*wanted, f"--dir={stores}"])
        assert [] == list(stores.iterdir())

    found = read_report(tmp_path / "report.json")
    counts = {"jobs": len(found.job_runs), "documents": len(found.catalogs), "hosts": len(found.host_runs)}
    assert 1 == counts[part]
    assert "|" in capsys.readouterr().out
    if part == "jobs":
        assert 2_000 == found.job_runs[0].drained[-1].jobs
    if part == "documents":
        assert (0, 100) == (found.catalogs[0].problems, found.catalogs[0].waiting)
