"""What is made of the times: rates, quantiles, tables, charts and the page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from bench.peers import chart, field, page, table
from bench.peers.figures import Behind, Figures, joined, kept, median, quantile, short_of
from bench.peers.machine import Machine
from bench.peers.marks import Marks, rate

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = Machine(
    date="2026-01-01", system="Linux", cores=2, memory_gb=8, python="3.11", servers={"SQLite": "3"}, busy=1.0
)


def ours(**values: object) -> Figures:
    return msgspec.convert(
        {"name": field.OURS, "store": "redis", "version": "1", "cpu_ms": [0.1], **values}, Figures
    )


def theirs(**values: object) -> Figures:
    return msgspec.structs.replace(ours(**values), name="RQ")


def column(head: str) -> table.Column:
    return next(each for each in table.COLUMNS if each.head.startswith(head))


def times(*values: float) -> np.ndarray:
    return np.array(values)


def test_rate_leaves_out_the_start_and_what_never_ran():
    # 0 … 10 s at one a second; the first second is settling, so 9 jobs came in the 9 seconds after it.
    ran = np.arange(11, dtype=float) + 100

    assert 1.0 == rate(np.append(ran, [0.0, 0.0]), np.zeros(13, np.int32) + 7)


def test_rate_of_two_begins_when_the_second_begins():
    first, second = np.arange(0, 20, 1.0) + 100, np.arange(10, 20, 1.0) + 100.5
    processes = np.array([1] * len(first) + [2] * len(second), np.int32)

    assert 2.0 == pytest.approx(rate(np.append(first, second), processes, 2), rel=0.1)


def test_rate_is_unknown_when_one_of_two_did_everything():
    assert None is rate(times(1.0, 2.0, 3.0), np.array([1, 1, 1], np.int32), 2)


def test_rate_is_unknown_when_all_ran_at_once():
    assert None is rate(times(1.0, 1.0), np.array([1, 1], np.int32))


def test_marks_of_one_process_are_seen_by_another(tmp_path):
    seen = Marks(tmp_path, 10)
    Marks(tmp_path).set(3)

    assert 1 == seen.done()
    assert 0 == seen.done(3)
    assert seen.times[3] > 0
    assert [0, 3] == sorted({int(number) for number in np.flatnonzero(seen.processes)} | {0})


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [
        ([], 0.5, None),
        ([3.0], 0.99, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.99, 99.0),
        ([float(n) for n in range(1, 101)], 1.0, 100.0),
    ],
)
def test_quantile_is_a_value_that_was_measured(values, part, expected):
    assert expected == quantile(values, part)


def test_median_of_nothing_is_unknown():
    assert None is median([])


def test_kept_compares_with_the_shortest_backlog():
    figures = ours(backlog={1_000: Behind([100.0, 200.0], 1_000), 100_000: Behind([150.0], 40_000)})

    assert 0.75 == kept(figures, 100_000)
    assert None is kept(figures, 1_000)
    assert None is kept(figures, 1_000_000)
    assert 40_000 == short_of(figures, 100_000)


def test_kept_is_unknown_when_hardly_more_were_behind():
    figures = ours(backlog={1_000: Behind([200.0], 1_000), 100_000: Behind([150.0], 2_000)})

    assert None is kept(figures, 100_000)


def test_later_figures_count_and_leave_the_others():
    both = joined(ours(one=[1.0], drain={1: [5.0], 2: [7.0]}), ours(one=[2.0], cpu_ms=[], drain={1: [6.0]}))

    assert ([2.0], [0.1], {1: [6.0], 2: [7.0]}) == (both.one, both.cpu_ms, both.drain)


def test_cell_says_how_long_was_waited_and_how_many_were_behind():
    short = ours(backlog={1_000: Behind([100.0, 200.0], 1_000), 100_000: Behind([150.0], 40_000)})

    assert "> 60" == table.cell(column("killed"), ours(waited_s=60.0))
    assert table.NOTHING == table.cell(column("killed"), ours())
    assert "1.5" == table.cell(column("killed"), ours(again_s=1.5))
    assert "0.75 (40k)" == table.cell(column("kept, 100k"), short)


def test_columns_without_a_number_are_left_out():
    heads = [each.head for each in table.columns("redis", [ours(counted={"commits": [1.0]})])]

    assert ["worker CPU ms a job"] == heads


def test_table_lists_who_is_not_installed():
    missing = Figures(name="RQ", store="redis", trouble=field.MISSING)

    lines = table.rendered("redis", [ours(), missing]).splitlines()

    assert ["Redis     worker CPU ms a job", "Penstock                0.100", "RQ: not installed"] == lines


def test_floor_is_never_the_best():
    floor = msgspec.structs.replace(ours(cpu_ms=[0.01]), name=field.FLOOR)

    best = table.best(column("worker CPU"), [ours(), floor, theirs(cpu_ms=[0.05])])

    assert best is not None
    assert "RQ" == best.name


def test_page_names_losses_and_wins(tmp_path):
    figures = [ours(one=[10.0], cpu_ms=[0.1]), theirs(one=[5.0], cpu_ms=[0.05])]

    page.write(MACHINE, "full", figures, ["One run."], tmp_path)
    text = (tmp_path / page.PAGE).read_text()

    assert "\n- One run.\n" in text
    assert "Penstock is first in: enqueue one /s." in text
    assert "**Not first** in: worker CPU ms a job (place 2 of 2; RQ is 2.0 × better)." in text
    assert "| RQ | 5 | **0.050** |" in text
    assert ["peers-drain.svg", "peers-pickup.svg"] == sorted(
        path.name for path in (tmp_path / "charts").iterdir()
    )


def test_page_fits_its_template():
    text = page.page(MACHINE, "full", [Figures(name="RQ", store="redis", trouble=field.MISSING)], [])

    assert "- RQ, Redis: not installed." in text
    assert "{" not in text.replace("{#", "")


def test_bars_stay_within_the_chart_and_keep_their_ratio():
    rows = [
        chart.Row("<ours>", "ours", (100.0, 50.0)),
        chart.Row("peer", "peer", (None, 25.0)),
        chart.Row("none", "peer", (None, None)),
    ]
    root = ElementTree.fromstring(chart.drawn("Title", "note", ",.0f", [chart.Panel("Store", rows)]))
    card, *bars = root.iter(f"{SVG}rect")
    widths = [float(bar.attrib["width"]) for bar in bars]
    ends = [float(bar.attrib["x"]) + float(bar.attrib["width"]) for bar in bars]
    lows = [float(each.attrib["y"]) for each in (*bars, *root.iter(f"{SVG}text"))]
    texts = [each.text for each in root.iter(f"{SVG}text")]

    assert [1.0, 0.5, 0.25] == [round(width / widths[0], 2) for width in widths]
    assert max(ends) <= chart.WIDTH - chart.MARGIN - chart.NUMBERS
    assert max(lows) < float(card.attrib["height"])
    assert "<ours>" in texts
    assert "– · 25" in texts
    assert "not measured" in texts


def test_every_contender_has_a_module_and_says_how_it_is_set_up():
    sides = Path(chart.__file__).parent / "sides"

    for contender in field.FIELD:
        assert (sides / f"{contender.module}.py").is_file()
        assert all((contender.workers, contender.bulk, contender.again))


def test_who_cannot_be_imported_is_not_installed():
    absent = msgspec.structs.replace(field.FIELD[-1], packages=("no-such-queue-anywhere",))

    assert None is field.version(absent)
    assert field.version(field.FIELD[0])
