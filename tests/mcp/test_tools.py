"""Every tool and resource of the MCP server, called by the SDK's own client over stdio."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from tests.mcp.conftest import Agent, connected

TOOLS = {
    "search": {"query", "limit", "collection", "path", "mode", "library", "project", "all"},
    "context": {"query", "max_tokens", "project", "all"},
    "add_note": {"text", "tags", "collection"},
    "index_path": {"path", "wait", "include_code", "collection", "project"},
    "job_status": {"job_id"},
    "wait_for_job": {"job_id", "timeout_s"},
    "cancel_job": {"job_id", "confirm"},
    "retry_job": {"job_id"},
    "list_documents": {"path", "limit", "project"},
    "read_document": {"path_or_id", "page"},
    "why": {"path", "project", "all"},
    "graph_neighbours": {"name", "hops"},
}


def job_of(text: str) -> str:
    found = re.search(r"job_\w+", text)
    assert found is not None, text
    return found[0]


def test_tools_have_the_settled_arguments_and_each_is_described(agent: Agent):
    found = {tool.name: tool for tool in agent.run(agent.client.list_tools).tools}

    assert TOOLS == {name: set(tool.input_schema["properties"]) for name, tool in found.items()}
    for tool in found.values():
        assert tool.description
        for name, argument in tool.input_schema["properties"].items():
            assert argument.get("description"), f"{tool.name}.{name}"


def test_an_unknown_argument_is_refused(agent: Agent):
    for tool, argument in (("search", "tenant"), ("search", "colection"), ("context", "projekt")):
        told = agent.refusal(tool, **{"query": "wheel", argument: "x"})
        assert f"{tool} has no option {argument!r}" in told
        assert "ERR_UNKNOWN_OPTION" in told
    for each in agent.run(agent.client.list_tools).tools:
        assert each.input_schema["additionalProperties"] is False


def test_search_gives_path_lines_and_the_address_of_the_chunk(agent: Agent):
    found = agent.call("search", query="wheel below the weir", limit=1)

    assert f"{agent.folder}/files/mill.md:1-3 (The mill)" in found
    (uri,) = re.findall(r"chunk://\S+", found)
    assert "The wheel turns below the weir." in agent.read(uri)


def test_context_numbers_its_passages(agent: Agent):
    assert agent.call("context", query="hay", max_tokens=200).startswith(f"[1] {agent.folder}/files/barn.md")


def test_a_document_is_listed_and_read_by_path_and_by_id(agent: Agent):
    listed = agent.call("list_documents", path="*mill.md")
    (source_id,) = re.findall(r"document://(\S+)", listed)

    assert "indexed" in listed
    assert "barn.md" not in listed
    assert "The wheel turns" in agent.call("read_document", path_or_id="files/mill.md")
    assert "The wheel turns" in agent.call("read_document", path_or_id=source_id)
    document = json.loads(agent.read(f"document://{source_id}"))
    assert (source_id, "indexed") == (document["source_id"], document["status"])


def test_progress_of_a_waited_job_grows_to_its_total(agent: Agent):
    (agent.folder / "more").mkdir()
    for number in range(5):
        (agent.folder / "more" / f"{number}.md").write_text(f"Page {number}.\n")
    agent.progress.clear()

    assert "files: 5 of 5" in agent.call("index_path", path="more", wait=True)
    values = [done for done, _ in agent.progress]
    assert values == sorted(set(values)), "the protocol asks for values that grow"
    assert (5.0, 5.0) == agent.progress[-1]


def test_a_note_has_the_priority_and_tags_of_an_agent(agent: Agent):
    job_id = job_of(agent.call("add_note", text="The sluice sticks.", tags=["plans/mill", "repair"]))

    assert "done" in agent.call("wait_for_job", job_id=job_id)
    assert 8 == json.loads(agent.read(f"job://{job_id}"))["priority"]
    assert "The sluice sticks." in agent.call("search", query="sluice")


def test_why_explains_a_path_that_was_never_indexed(agent: Agent):
    assert "indexed" in agent.call("why", path="files/mill.md")
    assert "remedy: " in agent.call("why", path="nowhere.md")


def test_a_refusal_carries_code_and_remedy(agent: Agent):
    assert "ERR_JOB_NOT_FOUND: " in agent.refusal("job_status", job_id="job_none")
    assert "ERR_PATH_NOT_FOUND: " in agent.refusal("index_path", path="missing")
    for tool, argument in (("why", "path"), ("read_document", "path_or_id")):
        assert "ERR_PATH_NOT_FOUND: " in agent.refusal(tool, **{argument: "a\0.md"})
    assert "ERR_INVALID_REQUEST: limit: expected 1 to 50" in agent.refusal("search", query="x", limit=51)
    assert "graph" in agent.refusal("graph_neighbours", name="Nobody")
    assert "query" in agent.refusal("search")


def test_a_missing_resource_is_an_error_of_the_protocol(agent: Agent):
    for uri in ("job://job_none", "document://none", "chunk://none.none", "chunk://none"):
        with pytest.raises(MCPError, match="ERR_"):
            agent.read(uri)


def test_a_failed_job_is_retried(agent: Agent):
    job_id = job_of(agent.call("add_note", text="A second note."))
    agent.call("wait_for_job", job_id=job_id)

    assert "ERR_CANNOT_RETRY" in agent.refusal("retry_job", job_id=job_id)


def test_a_job_is_cancelled_only_when_the_person_agrees(tmp_path: Path):
    (tmp_path / "a.md").write_text("One.\n")
    answers = iter(["decline", "accept"])
    asked: list[str] = []

    def confirm(question: object) -> ElicitResult:
        asked.append(getattr(question, "message", ""))
        return ElicitResult(action=next(answers), content={"confirm": True})  # type: ignore[arg-type]

    with connected(tmp_path, "--no-worker", confirm=confirm) as agent:
        job_id = job_of(agent.call("index_path", path="a.md"))
        assert "ERR_NOT_CONFIRMED" in agent.refusal("cancel_job", job_id=job_id, confirm=True)
        assert "pending" in agent.call("job_status", job_id=job_id)
        assert "cancelled" in agent.call("cancel_job", job_id=job_id)
    assert [f"Cancel job {job_id}?"] * 2 == asked


def test_a_client_that_cannot_ask_confirms_by_argument(tmp_path: Path):
    (tmp_path / "a.md").write_text("One.\n")
    with connected(tmp_path, "--no-worker", mode="legacy") as agent:
        job_id = job_of(agent.call("index_path", path="a.md"))
        assert "ERR_NOT_CONFIRMED" in agent.refusal("cancel_job", job_id=job_id)
        assert "pending" in agent.call("wait_for_job", job_id=job_id, timeout_s=0.1)
        assert "cancelled" in agent.call("cancel_job", job_id=job_id, confirm=True)
        assert "pending" in agent.call("retry_job", job_id=job_id)
