"""Results of any JSON: every reader of a job takes what a function or an application's handler returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import Penstock, config
from penstock.errors import CannotRetry
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, Job
from penstock.redis_contract.messages import _result_fields
from penstock.service import job_views
from penstock.service.job_views import JobRecords
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.cli.conftest import state as state

RESULTS = [
    *([1, 2], [], "done", "", 7, 0, 1.5, True, False, None, {}),
    *({"total": "x", "sent": []}, {"chunks": "many"}),
]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "function": ("run", {"function_name": "mail"}),
    "folder": ("ingest", {"folder_path": "/srv/docs"}),
    "file": ("ingest", {"file_path": "/srv/docs/a.md"}),
    "content": ("ingest", {"content": "The mill runs."}),
}


@pytest.fixture
def app(state: Path) -> Penstock:
    return Penstock(settings=config.load({}, state_dir=state, sqlite_synchronous="NORMAL"))


def done(app: Penstock, kind: str, result: Any) -> Job:
    op, payload = KINDS[kind]
    receipt = app.submit(item_type=kind, op=op, payload=payload)
    (claim,) = app.queue.claim(ClaimRequest("w1"))
    app.queue.settle([transitions.done(claim, result_json=json.dumps(result))])
    return app.job(receipt.job_id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_done_job_is_shown_and_not_retried_whatever_it_returned(app: Penstock, kind: str):
    records = JobRecords(app)
    for result in RESULTS:
        job = done(app, kind, result)

        with pytest.raises(CannotRetry):
            app.documents.retry(job.queue_id)
        shown = json.loads(msgspec.json.encode(records.detail(job)))
        assert result == shown["result"] or (kind == "folder" and isinstance(result, dict))
        assert type(shown["progress"]["chunks_created"]) is int
        msgspec.json.encode([records.record(job), job_views.job_view(app, job), _result_fields(job.result)])


def test_commands_show_and_refuse_to_retry_a_job_that_returned_no_object(app: Penstock, run: Run):
    for result in ([1, 2], "done", 7):
        job_id = done(app, "function", result).queue_id
        assert "Cannot retry job with status" in run("retry", job_id, code=5).stderr
        assert json.dumps(result) in run("jobs", job_id).stdout


def test_a_call_that_returned_the_word_of_a_partial_document_is_not_called_again(app: Penstock):
    job = done(app, "function", {"partial": True})

    with pytest.raises(CannotRetry):
        app.documents.retry(job.queue_id)
    assert 1 == len(app.jobs())
