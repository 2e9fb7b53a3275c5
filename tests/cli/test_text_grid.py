"""Tables and fields as text of a given width."""

from __future__ import annotations

import pytest

from penstock.cli.output import Column, Screen, cells_wide, columns, cut, folded, name_value_lines, wrapped

COLOURS = {"failed": "red"}
LONG = "The mill takes in water through the gate, and the wheel turns."
GRID = [
    Column(["job", "job_1", "job_22"]),
    Column(["chunks", "7", "1200"], right=True),
    Column(["what", LONG, "failed"]),
]


def test_without_a_terminal_values_are_whole():
    assert columns(GRID, COLOURS, Screen(None, False)).splitlines() == [
        "job     chunks  what",
        f"job_1        7  {LONG}",
        "job_22    1200  failed",
    ]


@pytest.mark.parametrize("width", [30, 60, 100, 200])
def test_a_table_is_no_wider_than_the_terminal(width: int):
    lines = columns(GRID, COLOURS, Screen(width, False)).splitlines()

    assert max(map(len, lines)) <= width
    assert (width < 80) == ("…" in lines[1])
    assert lines[2].endswith("failed")


def test_where_the_last_column_is_not_enough_the_widest_is_cut_too():
    grid = [Column(["path", "a" * 40]), Column(["size", "b" * 40])]

    lines = columns(grid, COLOURS, Screen(20, False)).splitlines()

    assert ["path          size", "aaaaaaaaaaa…  bbbbb…"] == lines


def test_a_folded_column_continues_below_itself():
    lines = columns(GRID, COLOURS, Screen(40, False), fold=True).splitlines()

    assert max(map(len, lines)) <= 40
    assert LONG == " ".join(line[16:].strip() for line in lines[1:-1])


def test_colours_and_bold_headers_on_a_terminal_only():
    shown = columns(GRID, COLOURS, Screen(100, True))

    assert "\x1b[31mfailed\x1b[0m" in shown
    assert "\x1b[1mjob\x1b[0m" in shown
    assert "\x1b" not in columns(GRID, COLOURS, Screen(100, False))


def test_a_long_value_of_a_field_continues_below_itself():
    lines = name_value_lines(
        [("Path", LONG), ("Status", "failed (held)")], COLOURS, Screen(30, False)
    ).splitlines()

    assert max(map(len, lines)) <= 30
    assert lines[0].startswith("Path    The mill")
    assert all(line.startswith(" " * 8) for line in lines[1:-1])
    assert "Status  failed (held)" == lines[-1]


@pytest.mark.parametrize(
    ("text", "width"), [("mill", 4), ("水車", 4), ("Mu\u0308hle", 5), ("\N{SOFT HYPHEN}", 0), ("ｍ", 2)]
)
def test_cells_of_a_text(text: str, width: int):
    assert width == cells_wide(text)


def test_a_text_is_cut_and_folded_by_cells():
    assert "水…" == cut("水車小屋", 4)
    assert ["水車", "小屋"] == list(folded("水車小屋", 5))
    assert ["the mill", "turns"] == list(folded("the mill turns", 10))
    assert ["whole"] == list(folded("whole", None))


def test_a_sentence_is_wrapped_between_words_not_in_an_option(monkeypatch: pytest.MonkeyPatch):
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "60")):
        monkeypatch.setenv(name, value)
    sentence = "Code is included: the folder is in a git repository (--no-code leaves it out)."

    lines = wrapped(sentence).splitlines()

    assert ["Code is included: the folder is in a git repository", "(--no-code leaves it out)."] == lines
