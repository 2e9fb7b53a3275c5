"""A folder of real documents, indexed as a person would: each file ends as its manifest says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock import Penstock, config
from penstock.service.why import Reason
from tests.pipeline.conftest import CORPUS
from tests.servers import run

pytestmark = [
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not beside this checkout"),
    pytest.mark.long,
]

READ = (
    "text columns form table nonlatin scan mixed ownerpw docx office html markup encoding data mail image"
).split()
"""Classes of the manifest whose files end as documents with text."""


class Indexed(NamedTuple):
    """The corpus after two runs of ``penstock index``: an open application, and both reports."""

    app: Penstock
    first: dict[str, Any]
    second: dict[str, Any]

    def why(self, file: str) -> Reason:
        return self.app.documents.why(CORPUS / file)


def index(state: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock", "index", str(CORPUS), "--json"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    environment |= {"PENSTOCK_STATE": str(state), "PENSTOCK_SQLITE_SYNCHRONOUS": "NORMAL"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def corpus() -> Iterator[Indexed]:
    state, reports = run.place() / "corpus", run.place() / "corpus.json"
    # Once for all processes of a run: the files are many.
    with run.alone("corpus"):
        if not reports.exists():
            reports.write_text(json.dumps([index(state), index(state)]))
    first, second = json.loads(reports.read_text())
    with Penstock(settings=config.load({}, state_dir=state)) as app:
        yield Indexed(app, first, second)


@cache
def manifest() -> list[dict[str, Any]]:
    if not CORPUS.is_dir():
        return []
    lines = (CORPUS / "MANIFEST.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def of(*classes: str) -> pytest.MarkDecorator:
    files = [entry["file"] for entry in manifest() if entry["class"] in classes]
    return pytest.mark.parametrize("file", files)


@of(*READ)
def test_a_readable_file_is_a_document_with_text(corpus: Indexed, file: str):
    found = corpus.why(file)

    assert "indexed" == found.verdict, found.cause
    assert found.source is not None
    assert found.source.chunk_count > 0
    assert not found.source.partial


@of("encrypted")
def test_an_encrypted_file_fails_with_its_reason(corpus: Indexed, file: str):
    found = corpus.why(file)

    assert "failed" == found.verdict
    assert "encrypted" in found.cause
    assert found.remedy


@of("malformed")
def test_a_damaged_file_is_read_as_far_as_possible_or_fails_with_its_reason(corpus: Indexed, file: str):
    found = corpus.why(file)

    if found.verdict == "failed":
        assert found.cause
        assert found.remedy
    else:
        assert "indexed" == found.verdict
        assert found.source is not None
        assert found.source.chunk_count > 0 or found.warnings


@of("notdoc")
def test_what_is_no_document_is_left_out_by_a_rule(corpus: Indexed, file: str):
    assert "skipped" == corpus.why(file).verdict


def test_every_file_ends_and_the_report_counts_it(corpus: Indexed):
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    verdicts = {path: corpus.app.documents.why(path).verdict for path in files}

    assert {"indexed", "failed", "skipped"} == set(verdicts.values())


def test_a_second_run_reads_nothing(corpus: Indexed):
    assert 0 == corpus.second["counts"]["indexed"]
    assert corpus.first["counts"]["indexed"] == corpus.second["counts"]["unchanged"]
