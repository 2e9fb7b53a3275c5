"""The comparison of ingestion libraries: folders and their changes, commands, tables and the page.

The libraries themselves are what `make pipeline-peers` is for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from bench.peers.machine import Machine
from bench.pipeline_peers import corpus, environments, measures, page, table
from bench.pipeline_peers.command import Failed, run
from bench.pipeline_peers.field import FIELD, FLOOR, OURS
from bench.pipeline_peers.figures import STEPS, Figures, Run, joined
from bench.pipeline_peers.report import Report
from bench.pipeline_peers.sides.paragraphs import split

MACHINE = Machine(
    date="2026-01-01", system="Linux", cores=2, memory_gb=8, python="3.11", servers={"SQLite": "3"}, busy=1.0
)


def side(name):
    return next(each for each in FIELD if each.name == name)


def folder(below, **texts):
    for name, text in texts.items():
        path = below / f"part-{name[0]}" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return below


def figures(name, seconds, *, wrong=(), corpus_name="300"):
    steps = {
        step: [
            Run(cpu_s=seconds, wall_s=1, memory_mb=100, embedded=5, wrong="files" if step in wrong else "")
        ]
        for step in STEPS
    }
    return Figures(name=name, corpus=corpus_name, version="1.0", chunks=5, steps=steps)


def test_an_index_is_right_when_it_has_each_file_and_each_word_once(tmp_path):
    files = folder(tmp_path, a1="Water drives\n\nthe wheel.", b1="A mill.")
    right = {"part-a/a1.txt": ["Water drives", "the  wheel."], "part-b/b1.txt": ["A mill."]}

    assert "" == corpus.difference(files, right)
    for wrong in (
        {"part-a/a1.txt": right["part-a/a1.txt"]},
        right | {"part-c/c1.txt": ["left"]},
        right | {"part-b/b1.txt": ["A mill.", "A mill."]},
        right | {"part-b/b1.txt": ["An old mill."]},
        right | {"part-a/a1.txt": ["Water drives"]},
    ):
        assert corpus.difference(files, wrong)


def test_changes_touch_what_they_say(tmp_path):
    files = folder(tmp_path, a1="short", b1="a long line\nand another one\n", b2="x")
    before = {path.name: path.read_text() for path in files.rglob("*.txt")}

    corpus.edit(files)
    after = {path.name: path.read_text() for path in files.rglob("*.txt")}
    assert ["b1.txt"] == [name for name in before if before[name] != after[name]]
    corpus.rename(files)
    assert {"renamed", "part-b"} == {path.name for path in files.iterdir()}
    corpus.delete(files)
    assert {"a1.txt", "b2.txt"} == {path.name for path in files.rglob("*.txt")}


def test_a_corpus_without_the_collections_is_made_of_docstrings(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "CORPUS", tmp_path / "none")

    assert corpus.write(tmp_path / "files", 8, abstracts=True).startswith("8 text files")
    written = [path.read_text() for path in (tmp_path / "files").rglob("*.txt")]
    assert 8 == len(written)
    assert all(len(text) >= corpus.LEAST_CHARACTERS for text in written)


def test_a_splitter_by_hand_loses_nothing_and_keeps_its_size():
    text = "\n\n".join(f"{number} " + "word " * (number * 40) for number in range(30)) + "x" * 5_000

    chunks = split(text)

    assert "".join(text.split()) == "".join("".join(chunks).split())
    assert max(map(len, chunks)) <= 2_048
    assert [] == split("\n\n  \n")


@pytest.mark.parametrize("name", [pytest.param(OURS, marks=pytest.mark.long), FLOOR])
def test_a_side_indexes_counts_and_is_right(tmp_path, name):
    source = folder(tmp_path / "source", a1="Water drives the wheel.", b1="A mill by the brook.")
    place = measures.Place(side(name), Path(sys.executable), source, tmp_path)

    first = place.checked(place.index())

    assert (2, "") == (first.embedded, first.wrong)
    assert first.cpu_s > 0.05
    assert first.memory_mb > 10


@pytest.mark.long
def test_the_bare_loop_follows_every_change(tmp_path):
    source = folder(
        tmp_path / "source", a1="Water drives\nthe wheel.", b1="A mill by the brook.", b2="A cat."
    )
    found = Figures(name=FLOOR, corpus="300")

    measures.measure(side(FLOOR), Path(sys.executable), source, tmp_path, found)

    assert "" == found.trouble
    assert list(STEPS) == list(found.steps)
    assert {""} == {found.wrong(step) for step in STEPS}
    assert [3, 0, 1, 1, 0] == [found.embedded(step) for step in STEPS[:-1]]
    # All are embedded by one call; its result is lost, unless the loop was faster than the kill.
    assert found.embedded("killed") in (3, 6)
    assert 3 == found.chunks


WORK = """
import os, subprocess, sys, time
subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"])
with open(os.environ["BENCH_EMBEDDED"], "ab", buffering=0) as file:
    file.write(b"...")
    sys.stdout.write("said")
    sys.stdout.flush()
    {then}
"""


def test_a_command_is_killed_once_enough_is_embedded(tmp_path):
    command = [sys.executable, "-c", WORK.format(then="time.sleep(60)")]

    spent = run(command, {}, tmp_path / "embedded", kill_at=2)

    assert (3, "said") == (spent.embedded, spent.output)
    assert spent.wall_s < 30


def test_the_cpu_time_of_children_counts(tmp_path):
    spent = run([sys.executable, "-c", WORK.format(then="pass")], {}, tmp_path / "embedded")
    alone = run([sys.executable, "-c", "pass"], {}, tmp_path / "embedded")

    assert spent.cpu_s > 1.5 * alone.cpu_s
    assert (3, 0) == (spent.embedded, alone.embedded)


def test_a_failed_command_says_why(tmp_path):
    with pytest.raises(Failed, match="no such thing"):
        run([sys.executable, "-c", "raise SystemExit('no such thing')"], {}, tmp_path / "embedded")


def test_a_failed_command_says_why_without_its_traceback(tmp_path):
    with pytest.raises(Failed) as failed:
        run([sys.executable, "-c", "raise OSError('no such thing')"], {}, tmp_path / "embedded")

    assert "OSError: no such thing" == str(failed.value)


def test_a_step_that_is_wrong_is_marked_and_never_the_best():
    shown = [figures(OURS, 2.0), figures(FLOOR, 0.1), figures("Fast", 1.0, wrong=("deleted",))]

    ours, _, fast = table.cpu(shown).splitlines()[2:]

    assert 5 == fast.count("**1.00**")
    assert "1.00 ✗" in fast
    assert 1 == ours.count("**2.00**")
    assert table.placed(shown).startswith("Penstock takes the least CPU time in: deleted file.")
    assert "first index (Fast takes 1/2.0 of its CPU time)" in table.placed(shown)
    assert ["Fast: deleted file (files)"] == table.differences(shown)
    assert "| Fast | 0.5 × |" in table.compared(shown)


def test_a_later_run_of_a_step_replaces_the_earlier():
    later = figures(OURS, 3.0)
    later.steps = {"first": later.steps["first"]}

    (found,) = joined([figures(OURS, 2.0), later])

    assert (3.0, 2.0) == (found.cpu_s("first"), found.cpu_s("killed"))


def test_the_page_has_tables_charts_and_troubles(tmp_path):
    shown = [figures(OURS, 2.0), figures("CocoIndex", 3.0)]
    shown[1].trouble = "no space left"
    report = Report(
        machine=MACHINE,
        corpora={"300": "300 text files"},
        figures=shown,
        notes=["A note."],
    )

    page.write(msgspec.json.decode(msgspec.json.encode(report), type=Report), tmp_path)

    text = (tmp_path / page.PAGE).read_text()
    for part in (
        "### 300 text files",
        "Each step once",
        "- A note.",
        "CocoIndex, 300 files: no space left",
    ):
        assert part in text
    assert side("CocoIndex").lacks in text
    drawn = ElementTree.parse(tmp_path / "charts" / page.CHART.format("300")).getroot()
    assert 12 == sum("peer" in (each.get("class") or "") or "ours" == each.get("class") for each in drawn)


def test_versions_are_pinned_without_addresses():
    for each in FIELD:
        if each.packages:
            pins = (environments.VERSIONS / f"{each.module}.txt").read_text().splitlines()
            assert environments.version(each)
            assert [] == [line for line in pins if "==" not in line or "/" in line]
            assert set(each.packages) | set(environments.EMBEDDING) <= {line.split("==")[0] for line in pins}


def test_the_texts_of_a_side_are_the_last_line_it_prints(tmp_path, monkeypatch):
    source = folder(tmp_path / "source", a1="Water")
    place = measures.Place(side(FLOOR), Path(sys.executable), source, tmp_path)
    said = f"a warning\n{json.dumps({'part-a/a1.txt': ['Water']})}"
    monkeypatch.setattr(place, "_command", lambda _: [sys.executable, "-c", f"print({said!r})"])

    assert {"part-a/a1.txt": ["Water"]} == place.stored()
