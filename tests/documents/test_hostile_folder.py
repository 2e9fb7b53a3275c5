"""A small version of ``make hostile``: everything ends, and nothing is read twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import hostile_folder


@pytest.mark.long
def test_a_folder_of_hostile_files_is_indexed_as_far_as_it_can_be(tmp_path: Path):
    result = hostile_folder.run(tmp_path, scale=400, good=40)

    assert [] == result.troubles
    assert result.verdicts["indexed"] > 200
