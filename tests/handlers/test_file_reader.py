"""Reading files while folders on the way to them are replaced by links."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.errors import PermanentFailure, UnsupportedType
from penstock.handlers.members import read_file
from penstock.pipeline.extract.protocol import ExtractLimits

LIMITS = ExtractLimits()


def text_of(path: Path, *, delivered: bool = False) -> bytes | None:
    read = read_file(str(path), LIMITS, lambda _: False, delivered=delivered)
    return None if read is None else read.data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("outside", "root/inner"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.txt").write_text(name)
    return tmp_path


@pytest.mark.parametrize("link", ["root", "root/inner", "root/inner/a.txt"])
def test_a_link_on_the_way_is_refused(folder: Path, link: str):
    path = folder / "root/inner/a.txt"
    assert b"root/inner" == text_of(path)
    (folder / link).rename(folder / "former")
    (folder / link).symlink_to(folder / "former")

    with pytest.raises(UnsupportedType, match="link") as refused:
        text_of(path)
    with pytest.raises(PermanentFailure) as outside:
        text_of(path, delivered=True)

    assert refused.value.remedy
    assert "ERR_OUTSIDE_RAG" == outside.value.error_code


def test_no_swap_of_a_folder_leads_outside(folder: Path):
    stop = threading.Event()

    def swap() -> None:
        inner, kept, link = (folder / name for name in ("root/inner", "kept", "link"))
        link.symlink_to(folder / "outside")
        while not stop.is_set():
            inner.rename(kept)
            link.rename(inner)
            inner.rename(link)
            kept.rename(inner)

    swapping = threading.Thread(target=swap)
    swapping.start()
    outcomes: set[bytes | None] = set()
    refused = 0
    try:
        for _ in range(5_000):
            try:
                outcomes.add(text_of(folder / "root/inner/a.txt"))
            except (UnsupportedType, FileNotFoundError, NotADirectoryError):
                refused += 1
    finally:
        stop.set()
        swapping.join()

    assert outcomes <= {b"root/inner"}
    assert refused
