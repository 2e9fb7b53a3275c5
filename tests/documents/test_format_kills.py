"""Workers killed at random while they index a file of each format; ``make formatkills`` does it longer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.documents.format_kills import Round, fill


@pytest.mark.long
def test_a_file_of_each_format_survives_kills_of_workers(tmp_path: Path):
    pages = fill(tmp_path / "files", small=True)
    one = Round(tmp_path / "round", "sqlite", tmp_path / "files", random.Random())
    # The time of an index on a free machine; on a busy one the kills come earlier in it.
    one.kill(2, usual=6.0)
    one.finish()
    assert [] == one.troubles(pages)
    one.contents()
    one.close()
