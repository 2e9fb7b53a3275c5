"""Traces by OpenTelemetry: one connected trace from the call over the worker to the webhook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from examples import webhook_receiver
from penstock import Penstock, config, traces
from tests.handlers.conftest import run_all

SECRET = "a secret of the mill"
APPLICATION = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from penstock import Penstock

trace.set_tracer_provider(TracerProvider())
# In batches, as in production: the process has to send them before it ends.
line = lambda span: span.to_json(indent=None) + "\\n"
exporter = ConsoleSpanExporter(out=open(os.environ["SPANS"], "a"), formatter=line)
trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=600_000))
app = Penstock()


@app.function
def grind(payload, context):
    context.log.info("grinding")
    with trace.get_tracer("mill").start_as_current_span("millstone"):
        return payload["sacks"] * 2
"""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of this process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@contextmanager
def receiver(headers: list[Mapping[str, str]]) -> Iterator[str]:
    own = webhook_receiver.Receiver(SECRET, lambda _: None)
    receive = own.receive

    def recorded(given: Mapping[str, str], body: bytes) -> tuple[int, str]:
        headers.append(given)
        return receive(given, body)

    own.receive = recorded  # type: ignore[method-assign, assignment]
    with webhook_receiver.server(own, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def plain(span: ReadableSpan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(span.to_json())
    return found


def connected(found: list[dict[str, Any]]) -> dict[str, str | None]:
    """Names of spans with the names of their parents. All are of one trace, and no parent is missing."""
    names = {span["context"]["span_id"]: span["name"] for span in found}
    assert 1 == len({span["context"]["trace_id"] for span in found}), found
    return {span["name"]: span["parent_id"] and names[span["parent_id"]] for span in found}


CALL = {
    "enqueue grind": "order",
    "wait grind": "enqueue grind",
    "run grind": "enqueue grind",
    "wait penstock.webhook": "enqueue grind",
    "run penstock.webhook": "enqueue grind",
    "order": None,
}


def test_one_trace_leads_from_the_call_to_the_webhook(tmp_path: Path, spans: InMemorySpanExporter):
    settings = {"url": "memory://", "webhook_key": SECRET, "webhook_private": True}
    headers: list[Mapping[str, str]] = []
    with receiver(headers) as url, Penstock(settings=config.load({}, state_dir=tmp_path, **settings)) as app:

        @app.function
        def grind(payload: dict[str, Any]) -> str | None:
            return traces.trace_id()

        with trace.get_tracer("shop").start_as_current_span("order"):
            expected = traces.trace_id()
            receipt = grind.call({}, webhook=url)
        run_all(app)
        assert expected == app.result(receipt.job_id), "the span is the current one of the function"
    found = [plain(span) for span in spans.get_finished_spans()]
    host = url.split("/")[2]
    parents = connected(found)
    settles = [span for span in found if span["name"] == "settle"]
    assert CALL | {f"POST {host}": "run penstock.webhook", "settle": "run penstock.webhook"} == parents
    assert ["done", "done"] == [span["attributes"]["penstock.status"] for span in settles]
    (post,) = [span for span in found if span["name"] == f"POST {host}"]
    trace_id, span_id = (post["context"][name][2:] for name in ("trace_id", "span_id"))
    assert headers[0]["traceparent"].startswith(f"00-{trace_id}-{span_id}-")


def test_a_failed_attempt_is_an_error_in_its_span(tmp_path: Path, spans: InMemorySpanExporter):
    with Penstock("memory://", state_dir=tmp_path) as app:

        @app.function(max_retries=0)
        def grind(payload: dict[str, Any]) -> None:
            raise ValueError("a stone in the grain")

        @app.handler("content", "ingest", batch=10)
        def keep(contexts: list[Any]) -> list[Any]:
            return [None for _ in contexts]

        grind.call({})
        app.call_many([{"name": "grind"}, {"name": "grind"}])
        app.submit(item_type="content", op="ingest", payload={"content": "a"})
        run_all(app)
    found = [plain(span) for span in spans.get_finished_spans()]
    run = next(span for span in found if span["name"] == "run grind")
    assert ("ERROR", "ValueError: a stone in the grain") == tuple(run["status"].values())
    assert ["exception"] == [event["name"] for event in run["events"]]
    counts = [span["attributes"].get("messaging.batch.message_count") for span in found]
    assert [None, 2] == counts[:2]
    assert {"run content ingest", "enqueue content ingest"} <= {span["name"] for span in found}
    assert {} == traces._unsettled


def test_a_worker_process_continues_the_trace(
    tmp_path: Path, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
):
    """The call is made here, and a worker of another process runs it and its webhook."""
    (tmp_path / "milling.py").write_text(APPLICATION)
    own = {"PENSTOCK_STATE": str(tmp_path / "state"), "PENSTOCK_WEBHOOK_KEY": SECRET}
    own |= {"PENSTOCK_WEBHOOK_PRIVATE": "true", "SPANS": str(tmp_path / "spans"), "PYTHONPATH": str(tmp_path)}
    own["PENSTOCK_LOG_FORMAT"] = "json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")} | own
    headers: list[Mapping[str, str]] = []
    with receiver(headers) as url, Penstock(settings=config.load(environ)) as app:
        app.function("grind")(lambda payload: None)
        with trace.get_tracer("shop").start_as_current_span("order"):
            receipt = app.call("grind", {"sacks": 3}, webhook=url)
        command = [sys.executable, "-m", "penstock", "worker", "--app", "milling:app", "--until-idle"]
        ran = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False
        )
        assert 0 == ran.returncode, ran.stderr
        assert 6 == app.result(receipt.job_id)
    (said,) = [line for line in map(json.loads, ran.stderr.splitlines()) if line["event"] == "grinding"]
    assert (receipt.job_id, "grind", "default") == (said["job_id"], said["function"], said["tenant_id"])
    lines = (tmp_path / "spans").read_text().splitlines()
    found = [plain(span) for span in spans.get_finished_spans()] + [json.loads(line) for line in lines]
    expected = {"millstone": "run grind", f"POST {url.split('/')[2]}": "run penstock.webhook"}
    assert f"0x{said['trace_id']}" == found[0]["context"]["trace_id"]
    assert CALL | expected | {"settle": "run penstock.webhook"} == connected(found)
    assert 1 == len(headers)


@pytest.mark.parametrize("api", [False, True])
def test_nothing_is_imported_or_written_without_a_provider(tmp_path: Path, api: bool):
    code = f"""
import sys
{"import opentelemetry.trace" if api else ""}
before = {{name for name in sys.modules if name.startswith("opentelemetry")}}
from penstock import Penstock
app = Penstock("memory://", state_dir={str(tmp_path)!r})
app.function("grind")(lambda payload: None)
with app.worker_thread():
    receipt = app.call("grind", {{}})
    job = app.wait(receipt.job_id, timeout=60)
assert job.metadata == "{{}}", job.metadata
assert before == {{name for name in sys.modules if name.startswith("opentelemetry")}}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("given", [5, "", "00-x", f"00-{'0' * 32}-{'0' * 16}-01", "\N{SNOWMAN}", [1]])
def test_a_damaged_context_begins_a_new_trace(spans: InMemorySpanExporter, given: object):
    parent = traces._parent(json.dumps({"traceparent": given}))
    assert not trace.get_current_span(parent).get_span_context().is_valid
    assert traces.stored_trace_id({"traceparent": given}) in (None, "0" * 32)
    assert "a" * 32 == traces.stored_trace_id({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
