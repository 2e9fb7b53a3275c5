"""Fingerprints: when a phase must run again, and which libraries are loaded for the check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline import pipeline
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import fingerprints
from penstock.pipeline.embed.static import HashingEmbedder
from penstock.pipeline.ocr.pages import OcrSetup
from penstock.pipeline.ocr.protocol import OcrOptions
from penstock.strict_json import fingerprint


def test_a_fingerprint_is_of_names_and_values():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": "1"})


def test_settings_and_model_are_part_of_the_fingerprint():
    plain = fingerprints(ChunkSizes(), HashingEmbedder())

    assert plain == fingerprints(ChunkSizes(), HashingEmbedder())
    assert plain.ocr != fingerprints(ChunkSizes(overlap=8), HashingEmbedder()).ocr
    wider = fingerprints(ChunkSizes(), HashingEmbedder(128))
    assert (plain.ocr, False) == (wider.ocr, plain.vector == wider.vector)
    assert plain.ocr != fingerprints(ChunkSizes(), HashingEmbedder(), extractor_name="pdf").ocr


def test_a_running_process_notices_a_new_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "LOOK_AGAIN_S", -1.0)
    made = pipeline.Pipeline(HashingEmbedder(), ocr=OcrSetup(OcrOptions(tessdata_dir=str(tmp_path))))
    scan, text = (made.fingerprints(name, ChunkSizes()) for name in ("scan.pdf", "note.md"))
    before = [made.failure_fingerprint(each) for each in (scan, text)]
    (tmp_path / "xyz.traineddata").write_bytes(b"")
    after = [made.failure_fingerprint(each) for each in (scan, text)]
    made.close()

    assert [False, True] == [old == new for old, new in zip(before, after, strict=True)]


def test_values_and_rules_load_no_library():
    program = (
        "import sys, penstock, penstock.pipeline.draft, penstock.pipeline.draft;"
        "import penstock.pipeline.extract.sandbox.sandbox, penstock.pipeline.embed;"
        "heavy = 'numpy tokenizers selectolax pypdfium2 python_calamine olefile "
        "tree_sitter chardet wordllama';"
        "print(sorted(set(heavy.split()) & sys.modules.keys()))"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == answer.stdout.strip()
