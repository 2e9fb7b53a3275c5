"""Requests refused at every door: reserved names, and secrets in URLs; handlers of an application."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import Penstock, config, errors
from penstock.cli.main import cli
from tests.cli.conftest import Run

EVERYWHERE = [
    ("note", "The mill runs."),
    ("index", "."),
    ("search", "mill"),
    ("status",),
    ("documents", "list"),
    ("why", "mill.md"),
    ("rename", "/a", "/b"),
    ("delete", "/a"),
    ("verify",),
    ("rebuild",),
    ("queue", "list"),
    ("queue", "add", "content", "ingest", "--text", "The mill runs."),
]


@pytest.mark.parametrize("command", EVERYWHERE, ids=lambda command: " ".join(command[:2]))
def test_a_star_is_no_name_of_a_tenant(run: Run, command: tuple[str, ...]):
    error = json.loads(run("--json", *command, "--tenant", "*", code=1).stdout)["error"]

    assert ("ERR_INVALID_NAME", "Use another name.") == (error["code"], error["remedy"])


@pytest.mark.parametrize("command", [("status",), ("note", "hi"), ("index", "."), ("doctor",)])
def test_a_state_directory_must_be_text(tmp_path: Path, command: tuple[str, ...]):
    state = f"{tmp_path}/\udcff"

    told = CliRunner().invoke(cli, ["--json", "--state", state, *command])

    assert (3, "ERR_INVALID_SETTING") == (told.exit_code, json.loads(told.stdout)["error"]["code"])
    assert [] == list(tmp_path.iterdir())


def test_a_star_is_no_tenant_to_delete(run: Run):
    assert "ERR_INVALID_NAME" in run("delete-tenant", "*", "--yes", code=1).stderr


@pytest.mark.parametrize("kind", ["tenant_id", "collection"])
def test_a_star_is_no_name_in_the_library(tmp_path: Path, kind: str):
    named: Any = {kind: "*"}
    with Penstock(state_dir=tmp_path) as app:
        with pytest.raises(errors.InvalidName, match=kind):
            app.submit(item_type="content", op="ingest", payload={"content": "x"}, **named)
        with pytest.raises(errors.InvalidName, match=kind):
            app.index(tmp_path, **named)
        assert [] == app.jobs()


LIBRARY = {"library_name": "mill", "library_version": "1"}


def test_an_application_with_a_handler_of_its_own_can_submit_its_jobs(app: Penstock):
    app.handler("library", "ingest")(lambda context: context.payload["library_name"])

    with app.worker_thread():
        receipt = app.submit(item_type="library", op="ingest", payload=LIBRARY)
        job = app.wait(receipt.job_id, timeout=60)

    assert "mill" == job.result


MALFORMED = [
    "postgresql://alice:hun-ter2/db",
    "postgresql:alice:hun-ter2@localhost/db",
    "postgresql:/alice:hun-ter2@localhost/db",
    "alice:hun-ter2@localhost",
    "host=localhost password=hun-ter2",
    "postgresql://alice:hun/ter2@localhost:1/db",
    "postgresql://alice:hun@ter2@localhost:1/db",
    "postgresql://alice:12/hun-ter2@localhost:1/db",
    "postgresql://alice:hun%ter2@localhost:1/db",
    "postgresql://localhost:1/db?passwort=hun-ter2",
    "redis://alice:hun-ter2/0",
    "redis://alice:hun/ter2@localhost:1/0",
    "redis://alice:hun#ter2@localhost:1/0",
    "redis://alice:12?hun-ter2@localhost:1/0",
    "redis://[:hun-ter2@localhost",
    "redis//alice:hun-ter2@localhost/0",
    "rediss://:hun-ter2@localhost:1/0?ssl_cert_reqs=bad",
    "mysql://alice:hun-ter2@localhost/db",
    "sqlite://alice:hun-ter2@localhost/db",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_url_is_refused_without_its_password(run: Run, url: str):
    refused = run("--url", url, "queue", "stats", code=3)
    shown = CliRunner().invoke(cli, ["--url", url, "config", "show"])

    assert refused.stderr.startswith("error: ")
    for part in ("hun", "ter2"):
        assert part not in refused.output + shown.output


def test_a_call_says_at_once_that_it_needs_an_application(run: Run):
    payload = json.dumps({"function_name": "mail"})

    assert "penstock worker --app" in run("queue", "add", "function", "run", "--payload", payload).stderr


# Stores and models that cannot be used.


def refused(run: Run, *command: str, code: int = 1) -> str:
    """The one line of an error, which has a code and a remedy."""
    (line,) = run(*command, code=code).stderr.splitlines()
    assert line.startswith("error: ")
    assert "(ERR_" in line
    assert not line.endswith(")")
    return line


def test_an_unknown_store_names_those_that_there_are(run: Run, monkeypatch: pytest.MonkeyPatch):
    for variable, known in (("VECTOR_STORE", "qdrant://HOST:PORT"), ("GRAPH_STORE", "neo4j://USER")):
        monkeypatch.setenv(f"PENSTOCK_{variable}", "weaviate://127.0.0.1")
        assert known in refused(run, "search", "mill", code=3)
        monkeypatch.delenv(f"PENSTOCK_{variable}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("qdrant://:secret-1@127.0.0.1:{}", "refuses the key (401)"),
        ("chroma://:secret-1@127.0.0.1:{}", "refuses the key (401)"),
        ("qdrant+https://:secret-1@127.0.0.1:{}", "TLS error"),
    ],
)
def test_a_store_that_refuses_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, url: str, words: str):
    pytest.importorskip("qdrant_client")
    pytest.importorskip("chromadb")
    from tests.vector_stores.test_refusals import http_server

    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    run("note", "The mill runs.")
    with http_server() as port:
        monkeypatch.setenv("PENSTOCK_VECTOR_STORE", url.format(port))
        line = refused(run, "verify", "--fix")
    assert words in line
    assert "PENSTOCK_VECTOR_STORE" in line
    assert "secret-1" not in line


def test_a_collection_of_another_dimension_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    pytest.importorskip("qdrant_client")
    from penstock.catalog.parts import OutsideStore
    from penstock.vector_stores.protocol import Point, collection_name

    monkeypatch.setenv("PENSTOCK_EMBEDDER", "hashing")
    run("note", "The mill runs.")
    url = f"qdrant+local:{tmp_path}/vectors"
    monkeypatch.setenv("PENSTOCK_VECTOR_STORE", url)
    with Penstock(settings=config.load({}, state_dir=tmp_path / "state", vector_store=url)) as app:
        outside, store = app.documents.catalog.outside, app._assembly.vector_store
        assert store is not None
        attached = outside.attach(OutsideStore.VECTOR, store.address)
        (space,) = outside.spaces()
        store.upsert(collection_name(attached.catalog_id, space), [Point(1, "acme", 1, b"\0\0\x80?" * 3)])
    line = refused(run, "verify", "--fix")
    assert "holds vectors of 3 numbers, not 256" in line
    assert "Delete that collection" in line


def test_a_model_with_a_wrong_checksum_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("onnxruntime")
    from penstock.pipeline.embed.minilm import model_files

    for name in (model_files.GRAPH, model_files.VOCABULARY):
        (tmp_path / name).write_bytes(b"no graph")
    monkeypatch.setenv("PENSTOCK_EMBEDDER", "minilm")
    monkeypatch.setenv("PENSTOCK_MODELS_DIR", str(tmp_path))
    line = refused(run, "-q", "index", str(tmp_path), code=3)
    assert "minilm-int8.onnx: SHA-256 is" in line
    assert "penstock models install minilm" in line
