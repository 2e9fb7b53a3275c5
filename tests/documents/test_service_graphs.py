"""Graphs from a language model: what a bad answer costs, outages, token limits, and other work meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock, config
from penstock.catalog.values import Phase, TaskRequest
from penstock.pipeline.endpoint import EndpointOptions
from penstock.pipeline.graph.llm import LlmExtractor, LlmOptions
from penstock.queue.job import Status
from penstock.service.upkeep import Rebuilder
from penstock.worker.executor import Breakers
from tests.documents.conftest import WAIT_S, IndexedFolder, ManualWorker
from tests.pipeline.chat_server import TOKENS_A_CALL, ChatServer, chat_server
from tests.pipeline.scripted_endpoint import Answer, completion

on_sqlite = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)
on_both = pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)
NAMES = ("Anna", "Boris", "Clara", "Dora", "Emil", "Fritz")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


def extractor(
    server: ChatServer, *, model: str = "m", timeout_s: float = 20.0, **changed: Any
) -> LlmExtractor:
    address = EndpointOptions(url=server.url, model=model, timeout_s=timeout_s)
    return LlmExtractor(LlmOptions(address=address, guard=Breakers(), **changed))


def people(docs: IndexedFolder) -> set[str]:
    graph = docs.app.documents.catalog.graph
    return {node.name for node, _ in graph.nodes(docs.app.settings.tenant_id) if node.kind == "person"}


def put_all(docs: IndexedFolder) -> None:
    for name in NAMES:
        docs.put(f"{name.lower()}.txt", f"{name} waits here.")


def queued(docs: IndexedFolder, worker: ManualWorker) -> None:
    """Index the folder up to the vectors, so that only the graph is left."""
    docs.app.index(docs.folder, graph=True)
    while worker.run_jobs() is not None:
        continue
    while tasks := worker.claim(Phase.VECTOR):
        worker.catalog.settle(worker.phases.run(Phase.VECTOR, tasks))


def failures(worker: ManualWorker, now: Any) -> list[Any]:
    tasks = worker.catalog.claim(TaskRequest(Phase.GRAPHRAG, "hand", 256), now=now)
    outcomes = worker.phases.run(Phase.GRAPHRAG, tasks)
    worker.catalog.settle(outcomes, now=now)
    return outcomes


@on_both
def test_entities_come_from_the_model_and_tokens_are_counted(docs: IndexedFolder, server: ChatServer):
    docs.put("a.txt", "Anna met Boris.")
    docs.put("mill.py", "def grind():\n    return 1\n")
    with docs.manual_worker(llm=extractor(server)) as worker:
        docs.app.index(docs.folder, include_code=True, graph=True)
        worker.drain()
        assert people(docs) == {"Anna", "Boris"}
        assert server.texts == ["Anna met Boris."]
        with worker.catalog.snapshot() as snapshot:
            (use,) = snapshot.token_uses("default", clock.format_time(clock.now())[:7])
    assert (use.service, use.tokens) == ("graph endpoint", TOKENS_A_CALL)
    assert use.job_id.startswith("job_")
    assert docs.audit() == []


@on_sqlite
def test_another_model_is_asked_only_on_request(docs: IndexedFolder, server: ChatServer):
    docs.put("a.txt", "Anna met Boris.")
    docs.put("b.txt", "Clara waits here.")
    with docs.manual_worker(llm=extractor(server)) as worker:
        docs.app.index(docs.folder, graph=True)
        worker.drain()
    with docs.manual_worker(llm=extractor(server, model="other")) as worker:
        job = docs.app.index(docs.folder)
        worker.drain()
        result = docs.app.job(job.job_id).result or {}
        assert (2, 2) == (result["unchanged"], result["other_extractor"])
        assert "unchanged" == indexed(docs, worker, docs.folder / "a.txt")
        assert len(server.requests) == 2
        docs.put("b.txt", "Clara waits and Dora sings.")
        job = docs.app.index(docs.folder)
        worker.drain()
        assert (docs.app.job(job.job_id).result or {})["other_extractor"] == 1
        assert server.texts[2:] == ["Clara waits and Dora sings."]
        assert people(docs) == {"Anna", "Boris", "Clara", "Dora"}
        rebuilder = Rebuilder(worker.catalog, docs.app._assembly.jobs, worker._pipeline)
        plan = rebuilder.plan()
        assert ({"graph"}, 1) == (set(plan.by_reason), plan.total.chunks)
        rebuilder.start(plan)
        worker.drain()
        assert server.texts[3:] == ["Anna met Boris."]
        assert rebuilder.plan().total.documents == 0


def indexed(docs: IndexedFolder, worker: ManualWorker, path: Path) -> str:
    job = docs.app.index(path)
    worker.drain()
    outcome: str = (docs.app.job(job.job_id).result or {})["outcome"]
    return outcome


@on_sqlite
def test_another_model_extracts_anew_and_the_same_does_not(docs: IndexedFolder, server: ChatServer):
    docs.put("a.txt", "Anna met Boris.")
    for model, calls in (("m", 1), ("m", 1), ("other", 2)):
        with docs.manual_worker(llm=extractor(server, model=model)) as worker:
            docs.app.index(docs.folder, graph=True)
            worker.drain()
        assert len(server.requests) == calls
    with docs.manual_worker() as worker:
        docs.app.index(docs.folder, graph=True)
        worker.drain()
    assert people(docs) == set()
    assert len(server.requests) == 2


@on_sqlite
def test_a_worker_with_other_settings_leaves_the_chunks_to_another(docs: IndexedFolder, server: ChatServer):
    docs.put("a.txt", "Anna met Boris.")
    with docs.manual_worker(llm=extractor(server)) as worker:
        queued(docs, worker)
        with docs.manual_worker() as other:
            (outcome,) = failures(other, clock.now())
            assert "with other settings" in outcome.message
        failures(worker, clock.now() + timedelta(days=1))
    assert people(docs) == {"Anna", "Boris"}


@pytest.mark.parametrize(
    "answer",
    [Answer(body=completion("{")), Answer(500), Answer(left_out=5), Answer(400)],
    ids=["malformed", "500", "cut off", "refused"],
)
@on_sqlite
def test_one_bad_answer_fails_its_chunk_alone(docs: IndexedFolder, server: ChatServer, answer: Answer):
    put_all(docs)
    server.by_text["Clara"] = answer
    with docs.manual_worker(llm=extractor(server)) as worker:
        queued(docs, worker)
        worker.exhaust(Phase.GRAPHRAG)
        assert people(docs) == set(NAMES) - {"Clara"}
        assert docs.unsettled(worker) == ["graphrag_chunks failed"]
    # One call for each of the others.
    assert len(server.requests) - server.texts.count("Clara waits here.") == len(NAMES) - 1
    assert "clara.txt" in docs.found("waits", per_source=None)


@on_sqlite
def test_a_passing_failure_is_retried(docs: IndexedFolder, server: ChatServer):
    docs.put("a.txt", "Anna met Boris.")
    server.script = [Answer(body=completion("{")), Answer(500)]
    with docs.manual_worker(llm=extractor(server)) as worker:
        queued(docs, worker)
        worker.exhaust(Phase.GRAPHRAG)
    assert people(docs) == {"Anna", "Boris"}


@on_sqlite
def test_chunks_wait_for_a_service_that_is_down_and_no_retry_is_spent(
    docs: IndexedFolder, server: ChatServer
):
    put_all(docs)
    server.always = Answer(429, headers=(("Retry-After", "400"),))
    with docs.manual_worker(llm=extractor(server)) as worker:
        queued(docs, worker)
        now = clock.now()
        for turn in range(6):
            outcomes = failures(worker, now)
            assert len(outcomes) == len(NAMES)
            assert {outcome.retry_count for outcome in outcomes} == {0}
            # One call finds out for all; the breaker makes none at all once it is open.
            assert len(server.requests) == min(turn + 1, 3)
            assert failures(worker, now + timedelta(seconds=5)) == []
            now += timedelta(seconds=401)
        server.always = None
    with docs.manual_worker(llm=extractor(server)) as worker:
        failures(worker, now)
    assert people(docs) == set(NAMES)


@on_sqlite
def test_silence_of_the_service_spends_no_retry_but_silence_about_one_text_does(
    docs: IndexedFolder, server: ChatServer
):
    docs.put("a.txt", "Anna met Boris.")
    with docs.manual_worker(llm=extractor(server, timeout_s=0.3)) as worker:
        queued(docs, worker)
        now = clock.now()
        server.always = Answer(drips="body")
        (outcome,) = failures(worker, now)
        assert outcome.retry_count == 0
        assert "did not answer within" in outcome.message
        server.always, server.by_text["Anna"] = None, Answer(drips="body")
        for _ in range(5):
            now += timedelta(days=1)
            failures(worker, now)
        assert docs.unsettled(worker) == ["graphrag_chunks failed"]
        assert failures(worker, now + timedelta(days=9)) == []


@on_sqlite
def test_a_token_limit_stops_a_tenant_with_the_reason(docs: IndexedFolder, server: ChatServer):
    put_all(docs)
    with docs.manual_worker(llm=extractor(server, calls=1, token_limit=2 * TOKENS_A_CALL)) as worker:
        queued(docs, worker)
        outcomes = failures(worker, clock.now())
    stopped = [outcome for outcome in outcomes if outcome.code == "ERR_TOKEN_LIMIT"]
    assert (len(server.requests), len(stopped)) == (2, len(NAMES) - 2)
    assert "tenant 'default' has used 14 tokens of the graph endpoint" in (stopped[0].message or "")
    assert "Raise PENSTOCK_GRAPH_ENDPOINT_TOKENS" in (stopped[0].message or "")


@on_sqlite
def test_calls_are_made_together_once_the_service_answers(docs: IndexedFolder, server: ChatServer):
    put_all(docs)
    together = threading.Barrier(2)
    usual = server.usual

    def wait_for_another(request: dict[str, Any]) -> Answer:
        if "Anna" not in request["messages"][-1]["content"] and len(server.requests) > 1:
            together.wait(WAIT_S)
        return usual(request)

    server.usual = wait_for_another  # type: ignore[method-assign]
    docs.put("gina.txt", "Gina waits here.")
    with docs.manual_worker(llm=extractor(server, calls=2)) as worker:
        docs.app.index(docs.folder, graph=True)
        worker.drain()
    assert len(people(docs)) == len(NAMES) + 1


@on_sqlite
def test_other_work_goes_on_while_the_model_thinks(docs: IndexedFolder, server: ChatServer):
    """The first document waits for its entities as long as the second is indexed and searched."""
    thinking = threading.Event()
    usual = server.usual

    def think(request: dict[str, Any]) -> Answer:
        assert thinking.wait(WAIT_S)
        return usual(request)

    server.usual = think  # type: ignore[method-assign]
    values = {"graph": True, "graph_endpoint_url": server.url}
    settings = config.load({}, **config.portable_values(docs.app.settings) | values)
    docs.put("a.txt", "Anna met Boris.")
    with Penstock(settings=settings) as app, app.worker_thread():
        first = app.index(docs.folder)
        app.wait(first.job_id, timeout=WAIT_S)
        while not server.requests:
            thinking.wait(0.01)
        docs.put("b.txt", "Clara grinds corn.")
        second = app.wait(app.index(docs.folder).job_id, timeout=WAIT_S)
        assert second.status is Status.DONE
        assert docs.found("corn") == ["b.txt"]
        assert people(docs) == set()
        thinking.set()
        while people(docs) != {"Anna", "Boris", "Clara"}:
            threading.Event().wait(0.01)
