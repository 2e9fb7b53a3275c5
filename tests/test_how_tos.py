"""The how-tos for contributors, followed to the letter in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r'^```python title="(src/penstock/[\w/.]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def follow(page: str, clone: Path) -> list[str]:
    """Make the files of a page, and add its lines below the first one of their block."""
    changed = []
    text = (ROOT / "docs" / "contributing" / page).read_text(encoding="utf-8")
    for name, block in BLOCK.findall(text):
        file = clone / name
        if not file.exists():
            file.write_text(block, encoding="utf-8")
        else:
            known = block.splitlines(keepends=True)[0]
            parts = file.read_text(encoding="utf-8").split(known)
            assert 2 == len(parts), f"{name} has no single line {known!r}"
            file.write_text(parts[0] + block + parts[1], encoding="utf-8")
        changed.append(name)
    return changed


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    shutil.copytree(
        ROOT / "src" / "penstock",
        tmp_path / "src" / "penstock",
        ignore=shutil.ignore_patterns("__pycache__", "table", "dashboard"),
    )
    return tmp_path


def run(clone: Path, program: str, *arguments: str) -> str:
    """Run a program with the copy. Everything stays in its process, as others import the checkout."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(clone / 'src')!r})\n{program}",
            *arguments,
        ],
        env={**os.environ, "PENSTOCK_EMBEDDER": "hashing", "PENSTOCK_STATE": str(clone / "state")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert 0 == ran.returncode, ran.stderr
    return ran.stdout


COMMAND = "from penstock.__main__ import main; main()"
INDEX = """
from penstock import Penstock
with Penstock() as app, app.worker_thread():
    app.wait(app.index(sys.argv[1]).job_id, timeout=60)
    print(*[hit.text for hit in app.search("turbine")])
"""


def test_a_command_is_added_by_its_page_alone(clone: Path):
    assert 2 == len(follow("add-a-command.md", clone))

    assert {"state", "store"} == json.loads(run(clone, COMMAND, "where", "--json")).keys()
    assert "Show where the state and the store are." in run(clone, COMMAND, "--help")


def test_a_file_format_is_added_by_its_page_alone(clone: Path):
    assert 4 == len(follow("add-a-file-format.md", clone))
    page = clone / "page.gmi"
    page.write_text("# Mills\n\n=> gemini://mill.example/turbine The turbine turns\n", encoding="utf-8")

    assert "# Mills\n\nThe turbine turns" == run(clone, INDEX, str(page)).strip()
