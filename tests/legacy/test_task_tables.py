"""Tables of documents, pages and chunks: what was read there is not read again."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import Penstock, config
from penstock.cli.main import cli
from penstock.handlers.members import hash_of
from penstock.pipeline.extract.protocol import ExtractLimits
from tests.pipeline.sample_documents import pdf
from tests.servers import postgres

SCHEMA = """
CREATE TABLE documents (id TEXT PRIMARY KEY, filename TEXT, file_path TEXT, ocr_details TEXT,
    ocr_status TEXT DEFAULT 'pending', vector_index_status TEXT DEFAULT 'pending',
    graphrag_index_status TEXT DEFAULT 'pending', ocr_error TEXT, ocr_completed_at TEXT, file_hash TEXT,
    convert_status TEXT, index_status TEXT, created_at TEXT DEFAULT '2025-01-01T00:00:00Z');
CREATE TABLE task_queue_page (id TEXT PRIMARY KEY, document_id TEXT NOT NULL, page_number INTEGER NOT NULL,
    page_file_path VARCHAR(1000), ocr_status TEXT NOT NULL DEFAULT 'pending', ocr_error TEXT,
    ocr_completed_at TEXT);
CREATE TABLE task_queue_chunk (id TEXT PRIMARY KEY, page_id TEXT, document_id TEXT NOT NULL, chunk_id TEXT,
    chunk_index INTEGER, vector_status TEXT NOT NULL DEFAULT 'pending', vector_error TEXT);
"""
DONE = {"ocr_status": "completed", "vector_index_status": "completed", "graphrag_index_status": "completed"}
LATER = (datetime.now(UTC) + timedelta(days=1)).isoformat()


class Tables:
    """A store of the other system, with files of its documents and pages."""

    def __init__(self, place: Path) -> None:
        self.place, self.path = place, place / "old.db"
        self._connection = sqlite3.connect(self.path, isolation_level=None)
        self._connection.executescript(SCHEMA)

    def document(self, name: str, *pages: str | None, data: bytes | None = None, **columns: Any) -> Path:
        """Add a document with the texts of its pages; None: a page that failed."""
        file = self.place / f"{name}.pdf"
        file.write_bytes(pdf("Nothing of this is to be read.") if data is None else data)
        self._add("documents", id=name, filename=file.name, file_path=str(file), **DONE | columns)
        for number, text in enumerate(pages, 1):
            markdown = self.place / f"{name}_{number}_nohf.md"
            status, error = ("completed", None) if text is not None else ("failed", "no ink")
            if text is not None:
                markdown.write_text(text)
            self._add(
                "task_queue_page",
                id=f"{name}-{number}",
                document_id=name,
                page_number=number,
                page_file_path=str(markdown),
                ocr_status=status,
                ocr_error=error,
                ocr_completed_at=LATER,
            )
        return file

    def chunk(self, name: str, number: int, error: str) -> None:
        values = {"id": f"{name}-c{number}", "document_id": name, "chunk_index": number}
        self._add("task_queue_chunk", **values, vector_status="failed", vector_error=error)

    def _add(self, table: str, **values: Any) -> None:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    with closing(Tables(tmp_path)) as made:
        yield made


def imported(tables: Tables, *options: str, source: str | None = None, code: int = 0) -> Any:
    arguments = ["--state", str(tables.place / "state"), "import", "task-tables", source or str(tables.path)]
    result = CliRunner(env={"PENSTOCK_EMBEDDER": "hashing"}).invoke(cli, [*arguments, "--json", *options])
    assert code == result.exit_code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def app(tables: Tables) -> Iterator[Penstock]:
    with Penstock(settings=config.load({}, state_dir=tables.place / "state", embedder="hashing")) as made:
        yield made


def found(app: Penstock, query: str, mode: Any = "keyword") -> list[tuple[str, int | None]]:
    return [(Path(hit.path).name, hit.page) for hit in app.search(query, mode=mode)]


def reason(answer: Any, row_id: str) -> str:
    found: str = next(row["reason"] for row in answer["rows"] if row["id"] == row_id)
    return found


def test_a_document_that_was_read_is_found_at_once_and_never_read(
    tables: Tables, app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.document("plan", "# The gate\n\nIt opens in spring.", "The wheel turns.")

    answer = imported(tables)

    assert {
        "adopted": {"documents": 1, "pages": 2},
        "read": {"documents": 0, "reasons": {}},
        "again": {"vectors": 1, "entities": 1},
    } == answer["reading"]
    assert "its text is taken over" in reason(answer, "plan")
    assert [("plan.pdf", 1)] == found(app, "spring")
    assert [("plan.pdf", 2)] == found(app, "wheel")

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the file was parsed again")

    monkeypatch.setattr("penstock.pipeline.pipeline.Pipeline.draft", refuse)
    (job,) = app.jobs()
    with app.worker_thread():
        ended = app.wait(job.queue_id, timeout=60)
    assert ("done", "indexed", 2) == (str(ended.status), ended.result["outcome"], ended.result["embedded"])
    assert ("plan.pdf", 2) in found(app, "the wheel turns", "vector")
    assert [] == app.documents.catalog.audit()


def test_a_folder_with_documents_taken_over_is_unchanged(tables: Tables, app: Penstock) -> None:
    tables.document("plan", "The gate opens in spring.")
    imported(tables)
    (job,) = app.jobs()
    with app.worker_thread():
        app.wait(job.queue_id, timeout=60)
        folder = app.wait(app.index(tables.place, include=["*.pdf"]).job_id, timeout=60)

    assert "unchanged" == folder.result["outcome"], folder.result
    assert [("plan.pdf", None)] == found(app, "spring")


def test_details_from_before_there_were_rows_have_the_texts(tables: Tables, app: Penstock) -> None:
    markdown = tables.place / "2.md"
    markdown.write_text("The wheel turns.")
    details = {"pages": [{"text": "The gate opens."}, {"page_number": 2, "markdown_path": str(markdown)}]}
    columns: dict[str, Any] = dict.fromkeys(DONE)
    columns |= {"convert_status": "converted", "index_status": "indexed", "ocr_details": json.dumps(details)}
    tables.document("plan", **columns)

    assert {"documents": 1, "pages": 2} == imported(tables)["reading"]["adopted"]
    assert [("plan.pdf", 2)] == found(app, "wheel")


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_cannot_be_taken_over_is_counted_with_its_reason(tables: Tables, dry_run: bool) -> None:
    tables.document("good", "The gate.")
    tables.document("bare")
    (tables.place / "torn_2_nohf.md").unlink(missing_ok=True)
    tables.document("torn", "One.", "Two.")
    (tables.place / "torn_2_nohf.md").unlink()
    changed = tables.document("changed", "Old.")
    os.utime(changed, (4e9, 4e9))
    tables.document("gap", "One.", None, "Three.")
    tables.document("half", "One.", ocr_status="processing")
    tables.document(
        "new", ocr_status="pending", vector_index_status="pending", graphrag_index_status="pending"
    )

    answer = imported(tables, *(["--dry-run"] if dry_run else []))

    assert {"documents": 1, "pages": 1} == answer["reading"]["adopted"]
    assert {
        "documents": 6,
        "reasons": {
            "no text of its pages is in the tables": 1,
            "the Markdown file of a page is missing": 2,
            "its file changed after it was read there": 1,
            "was half done; starts again": 1,
            "it was not read there": 1,
        },
    } == answer["reading"]["read"]
    assert "read again here: its file changed" in reason(answer, "changed")


def test_a_hash_decides_whether_a_file_changed(tables: Tables, app: Penstock) -> None:
    same = pdf("The gate.")
    tables.document("same", "The gate.", data=same, file_hash="sha256:" + sha256(same).hexdigest())
    os.utime(tables.place / "same.pdf", (4e9, 4e9))
    tables.document("other", "The gate.", file_hash="0" * 64)

    answer = imported(tables)

    assert {"documents": 1, "pages": 1} == answer["reading"]["adopted"]
    assert {"its file changed after it was read there": 1} == answer["reading"]["read"]["reasons"]
    assert [("same.pdf", None)] == found(app, "gate")


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_link_or_a_pipe_in_the_place_of_a_file_is_not_taken_over(
    tables: Tables, options: tuple[str, ...]
) -> None:
    link, pipe = tables.document("link", "The gate."), tables.document("pipe", "The gate.")
    link.rename(tables.place / "elsewhere.pdf")
    link.symlink_to(tables.place / "elsewhere.pdf")
    pipe.unlink()
    os.mkfifo(pipe)

    answer = imported(tables, *options)

    assert 0 == answer["reading"]["adopted"]["documents"]
    assert {"it is not a regular file": 2} == answer["reading"]["read"]["reasons"]


def test_a_file_that_is_newer_than_the_files_of_its_pages_was_changed(tables: Tables) -> None:
    """Rows from before there were times."""
    times = tables.place / "old_1_nohf.md", tables.place / "same_1_nohf.md", tables.place / "same.pdf"
    for name in ("old", "same"):
        details = {"pages": [{"markdown_path": str(tables.place / f"{name}_1_nohf.md")}]}
        (tables.place / f"{name}_1_nohf.md").write_text("The gate.")
        tables.document(name, ocr_details=json.dumps(details))
    for path in times:
        os.utime(path, (1e9, 1e9))

    answer = imported(tables)

    assert {"documents": 1, "pages": 1} == answer["reading"]["adopted"]
    assert "read again here: its file changed" in reason(answer, "old")


def test_a_file_that_changes_while_it_is_taken_over_is_read(
    tables: Tables, app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tables.document("plan", "What it was.")

    def change_after(path: str, limits: ExtractLimits) -> str:
        found = hash_of(path, limits)
        file.write_bytes(pdf("What it is."))
        return found

    monkeypatch.setattr("penstock.service.adoption.hash_of", change_after)
    answer = imported(tables)

    assert 0 == answer["reading"]["adopted"]["documents"]
    assert "read again here: its file changed" in reason(answer, "plan")
    with app.worker_thread():
        for job in app.jobs():
            app.wait(job.queue_id, timeout=60)
    assert [("plan.pdf", None)] == found(app, "what")
    assert [] == found(app, "was")


def test_a_document_that_is_indexed_here_stays_as_it_is(tables: Tables, app: Penstock) -> None:
    file = tables.document("plan", "What it was.", data=pdf("What it is."))
    with app.worker_thread():
        app.wait(app.index(file).job_id, timeout=60)

    imported(tables)

    assert [] == found(app, "was")
    with app.worker_thread():
        for job in app.jobs():
            assert "done" == app.wait(job.queue_id, timeout=60).status
    assert [("plan.pdf", None)] == found(app, "what")


def test_a_second_import_takes_nothing_over_again(tables: Tables, app: Penstock) -> None:
    tables.document("plan", "The gate.")
    first, second = imported(tables), imported(tables)
    assert [row["job_id"] for row in first["rows"]] == [row["job_id"] for row in second["rows"]]
    assert 0 == second["reading"]["adopted"]["documents"]
    assert imported(tables, "--verify")["verified"]
    assert [("plan.pdf", None)] == found(app, "gate")


def test_errors_of_failed_pages_and_chunks_are_kept(tables: Tables, app: Penstock) -> None:
    tables.document("scan", "One.", None, ocr_status="failed")
    tables.document("long", "One.", vector_index_status="failed")
    tables.chunk("long", 4, "no model")

    answer = imported(tables)

    errors = {Path(job.payload["file_path"]).stem: job.error_message for job in app.jobs()}
    assert {"scan": "page 2: no ink", "long": "chunk 4: no model"} == errors
    assert "it failed there: no ink" in reason(answer, "scan-2")
    assert "it failed there: no model" in reason(answer, "long-c4")


def test_the_errors_of_a_document_that_starts_again_are_in_its_metadata(
    tables: Tables, app: Penstock
) -> None:
    tables.document("scan", "One.", None, ocr_status="processing")
    imported(tables)
    (job,) = app.jobs()
    columns = json.loads(job.metadata)["imported"]["columns"]
    assert ["page 2: no ink"] == columns["failed_parts"]


def test_tables_on_postgresql_are_taken_over(tables: Tables, app: Penstock) -> None:
    import psycopg

    url = postgres.fresh_store("s1")
    file = tables.document("plan", "The gate opens.")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """CREATE TABLE documents (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), file_path TEXT,
            ocr_status TEXT, vector_index_status TEXT, graphrag_index_status TEXT);
            CREATE TABLE task_queue_page (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), document_id UUID,
            page_number INT, page_file_path TEXT, ocr_status TEXT)"""
        )
        connection.execute(
            """WITH d AS (INSERT INTO documents (file_path, ocr_status, vector_index_status,
            graphrag_index_status) VALUES (%s, 'completed', 'completed', 'pending') RETURNING id)
            INSERT INTO task_queue_page (document_id, page_number, page_file_path, ocr_status)
            SELECT id, 1, %s, 'completed' FROM d""",
            (str(file), str(tables.place / "plan_1_nohf.md")),
        )

    answer = imported(tables, source=url)

    assert {"documents": 1, "pages": 1} == answer["reading"]["adopted"]
    assert [("plan.pdf", None)] == found(app, "gate")


def test_a_pipe_in_the_place_of_a_page_does_not_hold_the_import(tables: Tables) -> None:
    tables.document("plan", "One.")
    page = tables.place / "plan_1_nohf.md"
    page.unlink()
    os.mkfifo(page)
    assert {"the Markdown file of a page is missing": 1} == imported(tables)["reading"]["read"]["reasons"]


def test_the_report_for_people_counts_what_is_taken_over_and_what_is_read(tables: Tables) -> None:
    tables.document("plan", "One.", "Two.")
    tables.document("bare")
    arguments = [
        "--state",
        str(tables.place / "state"),
        "import",
        "task-tables",
        str(tables.path),
        "--dry-run",
    ]
    printed = CliRunner(env={"PENSTOCK_EMBEDDER": "hashing"}).invoke(cli, arguments).output
    assert "The text of 1 document (2 pages) is taken over; a worker makes only the vectors." in printed
    assert "A worker reads 1 document:" in printed
    assert "no text of its pages is in the tables" in printed
    assert "Entities of 2 documents are extracted again" in printed
    assert not (tables.place / "state").exists()
