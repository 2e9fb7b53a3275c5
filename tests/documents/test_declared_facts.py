"""Facts that a request declares about its file or project are compared with the disk."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import pytest

from penstock.handlers.file_request import project_mismatches
from penstock.queue.job import Status
from penstock.queue.payloads import ProjectPayload
from tests.documents.conftest import IndexedFolder

TEXT = "Water drives the wheel."
HASH = hashlib.sha256(TEXT.encode()).hexdigest()
OTHER = "0" * 64

pytestmark = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"size_bytes": len(TEXT), "file_hash": f"sha256:{HASH}", "file_type": "document"}, []),
        ({"file_type": "recipe"}, []),
        ({"size_bytes": 7}, [f"size_bytes: declared 7, found {len(TEXT)}"]),
        ({"file_hash": f"sha256:{OTHER}"}, [f"file_hash: declared sha256:{OTHER}, found sha256:{HASH}"]),
        ({"file_type": "code"}, ["file_type: declared code, found no code"]),
    ],
)
def test_a_file_that_is_not_as_declared_is_indexed_and_says_so(
    docs: IndexedFolder, declared: dict[str, Any], expected: list[str]
):
    path = docs.put("a.md", TEXT)

    job = docs.run("file", "ingest", {"file_path": str(path)} | declared)
    again = docs.run("file", "ingest", {"file_path": str(path)} | declared)

    assert (Status.DONE, "indexed") == (job.status, (job.result or {})["outcome"])
    assert [expected, expected] == [(each.result or {}).get("mismatches", []) for each in (job, again)]
    assert ["a.md"] == docs.found("wheel")


def test_a_project_that_is_not_as_declared_is_indexed_and_logged(
    docs: IndexedFolder, caplog: pytest.LogCaptureFixture
):
    docs.put(".git/HEAD", "ref: refs/heads/main\n")
    docs.put(".git/config", '[remote "origin"]\n\turl = git@host:mill/gate.git\n')
    docs.put("Cargo.toml", "[package]\n")
    docs.put("a.md", TEXT)
    declared = {"git_remote": "https://host/mill/weir", "project_type": "python"}

    with caplog.at_level(logging.WARNING, "penstock.queue.job"):
        job = docs.run("project", "ingest", {"project_root": str(docs.folder)} | declared)

    assert Status.DONE is job.status
    assert [
        f"{docs.folder} is not as declared: git_remote: declared https://host/mill/weir, "
        "found git@host:mill/gate.git",
        f"{docs.folder} is not as declared: project_type: declared python, found rust",
    ] == [record.getMessage() for record in caplog.records if "declared" in record.getMessage()]


@pytest.mark.parametrize("project_type", ["rust", "mixed"])
def test_what_is_true_of_a_project_is_no_mismatch(docs: IndexedFolder, project_type: str):
    docs.put(".git/HEAD", "ref: refs/heads/main\n")
    docs.put(".git/config", '[remote "origin"]\n\turl = git@host:mill/gate.git\n')
    docs.put("Cargo.toml", "[package]\n")
    if project_type == "mixed":
        docs.put("setup.py", "")
    payload = ProjectPayload(
        project_root=str(docs.folder), git_remote="https://host/mill/gate", project_type=project_type
    )

    assert [] == list(project_mismatches(payload))
