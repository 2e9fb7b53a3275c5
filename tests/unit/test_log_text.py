"""Tracebacks as text for rows: short enough, and still tracebacks."""

from __future__ import annotations

import pytest

from penstock.worker.executor import TRACEBACK_LIMIT, traceback_text

FIRST = "Traceback (most recent call last):\n"


def fail(depth: int, message: str) -> None:
    if depth:
        fail_again(depth - 1, f"{message}!")
    raise ValueError(message)


def fail_again(depth: int, message: str) -> None:
    """Take turns: a frame that is repeated is printed once."""
    fail(depth, message)


@pytest.mark.parametrize(
    ("depth", "message"),
    [(0, "torn"), (3, "torn"), (200, "torn"), (5, "x" * 1_900), (0, "\x00" * 900), (40, "\n")],
)
def test_a_traceback_of_any_length_begins_as_one_and_is_short(depth: int, message: str):
    with pytest.raises(ValueError) as raised:
        fail(depth, message)

    text = traceback_text(raised.value)

    assert text.startswith(FIRST)
    assert len(text) <= TRACEBACK_LIMIT


def test_a_short_traceback_is_kept_whole():
    with pytest.raises(ValueError, match="torn") as raised:
        fail(1, "torn")

    text = traceback_text(raised.value)

    assert 4 == text.count('File "')
    assert text.endswith("ValueError: torn!\n")


def test_of_a_long_traceback_the_last_frames_are_kept_each_whole():
    with pytest.raises(ValueError, match="torn") as raised:
        fail(60, "torn")

    _, left_out, *frames = traceback_text(raised.value).splitlines()

    assert "  ..." == left_out
    assert frames[0].startswith("  ")
    assert frames[-2].strip() == "raise ValueError(message)"
    assert frames[-1].startswith("ValueError: torn!!!")
