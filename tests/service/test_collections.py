"""Collections: listed, shown, and cleared by a job."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import pytest

from penstock import Penstock, config, errors
from penstock.service.requests import Where


@pytest.fixture
def app(tmp_path: Path):
    settings = config.load(
        {}, url=f"sqlite:///{tmp_path}/queue.db", state_dir=tmp_path / "state", embedder="hashing"
    )
    with Penstock(settings=settings) as made:
        yield made


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text)
    return folder


def indexed(app: Penstock, path: Path, **where: Unpack[Where]) -> None:
    with app.worker_thread():
        app.wait(app.index(path, **where).job_id, timeout=60)


def found(app: Penstock, query: str, **where: Unpack[Where]) -> list[str]:
    return sorted({Path(hit.path).name for hit in app.search(query, mode="keyword", **where)})


def test_collections_are_listed_and_shown(app: Penstock, tmp_path: Path):
    docs = write(tmp_path / "docs", a="The gate.", b="The wheel.")
    indexed(app, docs, collection="mill")
    indexed(app, docs, collection="mill", branch="next")
    indexed(app, docs, collection="mill", tenant_id="acme")
    indexed(app, docs / "a.md", collection="notes")

    assert [("acme", "mill", 2), ("default", "mill", 4), ("default", "notes", 1)] == [
        (one.tenant_id, one.collection, one.documents) for one in app.collections.list()
    ]
    assert ["mill"] == [one.collection for one in app.collections.list("acme")]
    shown = app.collections.show("mill")
    assert (4, 0, 0, 4) == (shown.documents, shown.failed, shown.open_jobs, shown.chunks)
    assert [("main", 2), ("next", 2)] == [(one.branch, one.documents) for one in shown.branches]


def test_clear_removes_all_of_one_collection_and_nothing_else(app: Penstock, tmp_path: Path):
    docs = write(tmp_path / "docs", a="The gate.", b="The gate, painted.")
    indexed(app, docs, collection="mill")
    indexed(app, docs, collection="mill", branch="next")
    indexed(app, docs, collection="notes")
    indexed(app, docs, collection="mill", tenant_id="acme")
    with app.worker_thread():
        app.wait(app.documents.note("A note about the gate.", collection="mill").job_id, timeout=60)
        assert found(app, "gate", collection="mill")
        receipt = app.collections.clear("mill")
        job = app.wait(receipt.job_id, timeout=60)

    assert ("done", {"outcome": "removed", "removed": 5}) == (str(job.status), job.result)
    assert [("acme", "mill", 2), ("default", "notes", 2)] == [
        (one.tenant_id, one.collection, one.documents) for one in app.collections.list()
    ]
    assert [] == found(app, "gate", collection="mill")
    assert ["a.md", "b.md"] == found(app, "gate", collection="notes")
    assert ["a.md", "b.md"] == found(app, "gate", collection="mill", tenant_id="acme")
    assert (docs / "a.md").exists()
    assert [] == app.documents.catalog.audit()


def test_requests_from_before_the_clear_index_nothing_and_later_ones_do(app: Penstock, tmp_path: Path):
    docs = write(tmp_path / "docs", a="The gate.")
    indexed(app, docs, collection="mill")
    late = write(tmp_path / "late", late="The late gate.")
    earlier = app.index(late / "late.md", collection="mill", priority=0)
    cleared = app.collections.clear("mill")
    with app.worker_thread():
        app.wait(cleared.job_id, timeout=60)
        assert "removed while indexing" == app.wait(earlier.job_id, timeout=60).result["outcome"]
    assert [] == found(app, "gate", collection="mill")

    indexed(app, docs, collection="mill")
    assert ["a.md"] == found(app, "gate", collection="mill")


def test_a_retry_by_name_is_a_new_request_and_a_retry_of_all_is_not(app: Penstock, tmp_path: Path):
    files = [tmp_path / "named.pdf", tmp_path / "other.pdf"]
    for file in files:
        file.write_bytes(b"%PDF-1.4 damaged")
    with app.worker_thread():
        failed = [app.index(file, collection="mill").job_id for file in files]
        assert ["failed"] * 2 == [str(app.wait(one, timeout=60).status) for one in failed]
        indexed_first = app.index(write(tmp_path / "first", a="The gate."), collection="mill")
        app.wait(indexed_first.job_id, timeout=60)
        app.wait(app.collections.clear("mill").job_id, timeout=60)
        for file in files:
            file.write_text("The gate, painted.")

        app.retry(failed[0])
        app.retry_failed()

        outcomes = [app.wait(one, timeout=60).result["outcome"] for one in failed]
    assert ["indexed", "removed while indexing"] == outcomes
    assert ["named.pdf"] == found(app, "gate", collection="mill")


def test_a_retried_removal_leaves_what_was_asked_for_since(app: Penstock, tmp_path: Path):
    docs = write(tmp_path / "docs", a="The gate.")
    indexed(app, docs, collection="mill")
    payload = {"file_path": str(docs / "a.md")}
    removal = app.submit(item_type="file", op="delete", payload=payload, collection="mill")
    app.cancel(removal.job_id)
    indexed(app, docs, collection="mill")
    app.retry(removal.job_id)
    with app.worker_thread():
        app.wait(removal.job_id, timeout=60)
    assert ["a.md"] == found(app, "gate", collection="mill")


def test_two_requests_to_clear_are_one_job_and_a_delete_of_the_root_is_another(app: Penstock, tmp_path: Path):
    indexed(app, write(tmp_path / "docs", a="The gate."), collection="mill")
    first, again = app.collections.clear("mill"), app.collections.clear("mill")
    assert (first.job_id, True) == (again.job_id, again.dedupe_hit)
    root = app.submit(item_type="folder", op="delete", payload={"folder_path": "/"}, collection="mill")
    assert root.job_id != first.job_id


def test_what_is_not_there_is_refused_and_nothing_is_queued(app: Penstock, tmp_path: Path):
    indexed(app, write(tmp_path / "docs", a="The gate."), collection="mill")
    before = len(app.jobs())
    for refused in (
        lambda: app.collections.clear("mil"),
        lambda: app.collections.show("mill", tenant_id="acme"),
        lambda: app.collections.clear("mill", tenant_id="acme"),
    ):
        with pytest.raises(errors.CollectionNotFound):
            refused()
    with pytest.raises(errors.InvalidName):
        app.collections.clear("a:b")
    assert before == len(app.jobs())


@pytest.mark.parametrize(("op", "folder"), [("ingest", "/"), ("scan", "/"), ("delete", "/docs")])
def test_only_a_delete_of_the_root_takes_a_whole_collection(app: Penstock, op: str, folder: str):
    payload = {"folder_path": folder, "whole_collection": True}
    with pytest.raises(errors.InvalidPayload, match="whole_collection"):
        app.submit(item_type="folder", op=op, payload=payload)
