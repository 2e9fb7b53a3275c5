"""Extensions of other packages: found by entry points, loaded on use, refused with the package's name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock, config, extensions
from penstock.database.factory import open_queue
from penstock.errors import ExtensionFailed, InvalidSetting, UnknownScheme
from penstock.extensions import ExtensionKind
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import build_draft, fingerprints
from penstock.pipeline.embed import open_embedder, open_space, space_of
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.factory import extract, is_sandboxed
from penstock.pipeline.extract.protocol import Content
from tests.extensions.conftest import EXAMPLE, Install

PAGE = b"# The mill\n\n=> gemini://mill.example The wheel\n\n## Winter\n\nThe gate sticks.\n"


def test_without_a_package_there_are_none(install: Install):
    assert () == extensions.names(ExtensionKind.EMBEDDER)
    assert extensions.find(ExtensionKind.QUEUE, "acme") is None


def test_the_example_is_found_by_its_entry_points(example: None):
    found = [(one.kind.name, one.name, one.package, one.version) for one in extensions.installed()]
    assert [
        ("CHUNKER", "gemtext", "penstock-gemtext", "1.0"),
        ("EMBEDDER", "letters", "penstock-gemtext", "1.0"),
        ("FORMAT", "gemtext", "penstock-gemtext", "1.0"),
        ("VECTOR_STORE", "vectorfiles+local", "penstock-gemtext", "1.0"),
    ] == found


def test_a_format_is_read_in_the_sandbox_and_cut_by_its_chunker(example: None):
    assert is_sandboxed("gemtext")
    assert not is_sandboxed("text")
    extracted = extract(Content("mill.gmi", PAGE))
    assert "[The wheel](gemini://mill.example)" in extracted.pages[0].text
    draft = build_draft(extracted, ChunkSizes(), complete=True)
    assert ["The mill", "Winter"] == [chunk.heading_path for chunk in draft.chunks]


def test_without_the_package_its_files_are_unknown(install: Install):
    assert file_types.by_name("mill.gmi") is None


def test_a_chunker_changes_the_fingerprint_of_its_documents_only(
    install: Install, monkeypatch: pytest.MonkeyPatch
):
    embedder = open_embedder("hashing")

    def made(name: str) -> str:
        return fingerprints(ChunkSizes(), embedder, extractor_name=name).ocr

    before = made("markdown"), made("text")
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    install("cuts", {"penstock.chunkers": {"markdown": "penstock_gemtext.sections:SectionChunker"}})
    after = made("markdown"), made("text")
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_an_embedder_is_chosen_by_its_name(example: None):
    settings = config.load(embedder="letters")
    embedder = open_embedder(settings.embedder)
    assert "letters" == embedder.name
    assert open_space(space_of(embedder)) is not None
    with pytest.raises(InvalidSetting, match="or the name of an extension"):
        config.load(embedder="lettres")


def test_a_document_goes_through_every_part(example: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A page of the format, its chunks, its vectors in the store of the extension, and the hit."""
    (tmp_path / "mill.gmi").write_bytes(PAGE)
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "letters")
    monkeypatch.setenv("PENSTOCK_VECTOR_STORE", f"vectorfiles+local:{tmp_path}/vectors")
    with Penstock(f"sqlite:///{tmp_path}/index.db", state_dir=tmp_path) as app:
        receipt = app.index(str(tmp_path / "mill.gmi"))
        with app.worker_thread():
            assert "done" == app.wait(receipt.job_id, timeout=120).status
        hit = app.search("why does the gate stick in winter")[0]
    assert ("Winter", 5) == (hit.heading, hit.first_line)
    assert 1 == len(list((tmp_path / "vectors").glob("*.json")))


BROKEN = {
    "missing": ("nowhere:thing", "cannot be loaded: No module named 'nowhere'"),
    "raising": ("raising:thing", "cannot be loaded: no licence"),
    "other": ("os:sep", "is not an AddedFormat, but str"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_format_names_its_package(install: Install, case: str):
    target, reason = BROKEN[case]
    install(
        "acme-formats", {"penstock.formats": {"acme": target}}, raising="raise RuntimeError('no licence')"
    )
    with pytest.raises(ExtensionFailed) as refused:
        file_types.by_name("a.acme")
    assert f"the format acme of the package acme-formats {reason}" == refused.value.message
    assert "pip uninstall acme-formats" in refused.value.remedy


def test_formats_of_penstock_are_not_replaced(install: Install):
    source = (
        "from penstock.pipeline.extract.file_types import AddedFormat\n"
        "from penstock.pipeline.extract.protocol import FileType\n"
        "ADDED = AddedFormat(FileType('text/x', 'acme'), ('pdf',), object)\n"
    )
    install("acme", {"penstock.formats": {"acme": "acme_formats:ADDED"}}, acme_formats=source)
    with pytest.raises(ExtensionFailed, match=r"suffix \.pdf, which Penstock reads itself"):
        file_types.by_name("a.other")


def test_two_packages_with_one_name_are_refused(install: Install):
    for package in ("acme-one", "acme-two"):
        install(package, {"penstock.embedders": {"acme": "os:getcwd"}})
    with pytest.raises(ExtensionFailed, match="declared twice, by acme-one and acme-two"):
        open_embedder("acme")


WRONG_CHUNKS = {
    "text": "Chunk('other', 0, 3, 1, 1)",
    "order": "Chunk(text[4:6], 4, 6, 1, 1), Chunk(text[0:3], 0, 3, 1, 1)",
    "line": "Chunk(text[0:3], 0, 3, 1, 99)",
}


@pytest.mark.parametrize("case", WRONG_CHUNKS)
def test_chunks_that_are_not_of_the_text_are_refused(install: Install, case: str):
    source = (
        "from penstock.pipeline.chunk.text import Chunk\n"
        "class Wrong:\n"
        "    name, version = 'wrong', '1'\n"
        f"    def chunk(self, text, sizes): return [{WRONG_CHUNKS[case]}]\n"
    )
    install("acme", {"penstock.chunkers": {"text": "acme_chunks:Wrong"}}, acme_chunks=source)
    with pytest.raises(ExtensionFailed, match="the chunker text of the package acme returned a chunk"):
        build_draft(extract(Content("a.txt", b"the mill")), ChunkSizes(), complete=True)


def test_a_queue_engine_is_opened_by_its_scheme(install: Install):
    source = (
        "from penstock.queue.memory.queue import MemoryQueue\n"
        "def open_queue(url):\n"
        "    assert url == 'acme://somewhere'\n"
        "    return MemoryQueue()\n"
    )
    install("acme-queue", {"penstock.queues": {"acme": "acme_queue:open_queue"}}, acme_queue=source)
    assert [] == open_queue(config.load(url="acme://somewhere")).workers()
    with pytest.raises(UnknownScheme):
        open_queue(config.load(url="acne://somewhere"))


def test_a_store_that_cannot_be_opened_names_its_package(install: Install):
    install("acme", {"penstock.graph_stores": {"acme": "os:getcwd"}})
    from penstock.graph_stores.factory import open_graph_store

    with pytest.raises(ExtensionFailed, match="the graph store acme of the package acme cannot be opened"):
        open_graph_store(config.load(graph_store="acme://host"))


def test_the_doctor_lists_extensions(example: None, tmp_path: Path):
    with Penstock(f"sqlite:///{tmp_path}/index.db", state_dir=tmp_path) as app:
        checks = app._assembly.diagnosis().checks
    (found,) = [check for check in checks if check.subject == "extensions"]
    assert "penstock-gemtext 1.0: chunker gemtext, embedder letters, format gemtext" in found.detail


@pytest.mark.long
def test_the_example_passes_the_contracts_once_installed(tmp_path: Path):
    """As its README says, with pip: no path, setting or file of Penstock is changed."""
    target = tmp_path / "installed"
    pip = [sys.executable, "-P", "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(EXAMPLE)], check=True, timeout=300)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        cwd=EXAMPLE,
        env=os.environ | {"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert 0 == ran.returncode, ran.stdout[-3000:]
    assert " passed" in ran.stdout
