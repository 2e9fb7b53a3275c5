"""Requests refused at every door: reserved names, and jobs without a handler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import Penstock, errors
from penstock.cli.main import cli
from penstock.service.requests import Submission
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


def test_a_job_that_nothing_can_do_is_refused_and_told_what_can_be_done(run: Run, app: Penstock):
    payload = json.dumps(LIBRARY)
    answer = run("--json", "queue", "add", "library", "ingest", "--payload", payload, code=1)

    error = json.loads(answer.stdout)["error"]
    assert "ERR_NO_HANDLER" == error["code"]
    assert "folder (ingest, delete, scan)" in error["message"]
    assert '@app.handler("library", "ingest")' in error["remedy"]
    assert [] == app.jobs()


def test_a_job_that_nothing_can_do_is_refused_with_all_that_came_with_it(app: Penstock):
    note: Submission = {"item_type": "content", "op": "ingest", "payload": {"content": "The mill runs."}}
    library: Submission = {"item_type": "library", "op": "ingest", "payload": LIBRARY}

    with pytest.raises(errors.NoHandler):
        app.submit_many([note, library])

    assert [] == app.jobs()


def test_an_application_with_a_handler_of_its_own_can_submit_its_jobs(app: Penstock):
    app.handler("library", "ingest")(lambda context: context.payload["library_name"])

    with app.worker_thread():
        receipt = app.submit(item_type="library", op="ingest", payload=LIBRARY)
        job = app.wait(receipt.job_id, timeout=60)

    assert "mill" == job.result
    with pytest.raises(errors.NoHandler):
        app.submit(item_type="library", op="update", payload=LIBRARY)


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
