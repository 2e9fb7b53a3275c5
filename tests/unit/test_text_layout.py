"""Text of documents on a terminal."""

from __future__ import annotations

import pytest

from penstock.cli.output import cells_wide, strip_control, wrap


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("red \x1b[31;1mtext\x1b[0m", "red text"),
        ("\x1b]0;a new title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jscreen", "screen"),
        ("cut off \x1b]0;without an end", "cut off "),
        ("\x1b", ""),
        ("a\x1b\x02[31m\x03b", "a\x02[31m\x03b"),
        ("bell\x07 null\x00 back\x08", "bell null back"),
        ("two\r\nlines\tand\u2028three\x85four", "two lines and three four"),
        ("over\u202eride \u2066isolate \ufeffmark", "override isolate mark"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        ),
        ("lone \ud800 private \ue000", "lone \ufffd private \ufffd"),
    ],
)
def test_nothing_in_a_text_drives_the_terminal(text: str, shown: str):
    assert shown.strip() == strip_control(text, keep="\x02\x03").strip()


@pytest.mark.parametrize(
    ("text", "width"),
    [("mill", 4), ("水車", 4), ("ｗｉｄｅ", 8), ("e\u0301", 1), ("\x02mill\x03", 4), ("🙂", 2), ("", 0)],
)
def test_characters_count_as_wide_as_they_are_shown(text: str, width: int):
    assert width == cells_wide(text)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("the mill takes in water", ["the mill", "takes in", "water"]),
        ("水車小屋は川にある", ["水車小屋", "は川にあ", "る"]),
        ("aab 水車 小屋", ["aab 水車", "小屋"]),
        ("averylongword of", ["averylon", "gword of"]),
        ("éééééééééé".encode().decode(), ["éééééééé", "éé"]),
        ("e\u0301" * 9, ["e\u0301" * 8, "e\u0301"]),
        ("\x02the mill\x03 takes", ["\x02the mill\x03", "takes"]),
        ("", []),
    ],
)
def test_lines_fit_the_width(text: str, lines: list[str]):
    assert lines == wrap(text, 8)
