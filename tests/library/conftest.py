"""The pages of the documentation, run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def run_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run_page(name: str) -> dict[str, Any]:
        blocks = BLOCK.findall((ROOT / name).read_text(encoding="utf-8"))
        assert blocks
        names: dict[str, Any] = {}
        for block in blocks:
            exec(compile(block, name, "exec"), names)  # noqa: S102 - our own pages
        return names

    return run_page
