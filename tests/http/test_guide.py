"""The curl commands of the HTTP guide: sent to a live server, they give what the guide shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.http.live_server import Answer, LiveServer

SERVE = ("--processes", "1")
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "http.md"
SHOWN = re.compile(r"^\$ (curl .+)\n(\{.+\})$", re.MULTILINE)
OPTIONS = {"-X": "method", "-H": "header", "-d": "body"}
VOLATILE = frozenset(["job_id", "path", "snippet", "queue_position", "queue_length"])


def send(server: LiveServer, command: str, key: str, job_id: str) -> Answer:
    """Send what curl would send."""
    words = shlex.split(command.replace("$KEY", key).replace("JOB_ID", job_id))[1:]
    given: dict[str, list[str]] = {"method": [], "header": [], "body": []}
    url = ""
    while words:
        word = words.pop(0)
        if word in OPTIONS:
            given[OPTIONS[word]].append(words.pop(0))
        else:
            url = word
    body = given["body"][0].encode() if given["body"] else None
    method = given["method"][0] if given["method"] else "POST" if body else "GET"
    headers = dict(header.split(": ", 1) for header in given["header"])
    return server.ask(method, url.removeprefix("localhost:8765"), body, headers=headers)


def differs(shown: Any, found: Any) -> bool:
    """Tell whether an answer lacks a field that the guide shows, or has another value there."""
    if isinstance(shown, dict):
        return not isinstance(found, dict) or any(
            name not in found or (name not in VOLATILE and differs(value, found[name]))
            for name, value in shown.items()
        )
    if isinstance(shown, list) and shown and isinstance(shown[0], dict):
        return not isinstance(found, list) or len(shown) != len(found) or any(map(differs, shown, found))
    return bool(shown != found)


@pytest.fixture(scope="module", autouse=True)
def routes(server: LiveServer) -> dict[str, Any]:
    """The routes, read before there is a key."""
    found: dict[str, Any] = server.ask("GET", "/openapi.json").body["paths"]
    return found


@pytest.fixture(scope="module")
def docs(server: LiveServer) -> None:
    folder = server.folder / "docs"
    folder.mkdir()
    (folder / "mill.md").write_text("The mill takes in water from the river.\n")
    (folder / "gate.txt").write_text("The gate is old.\n")


def test_the_curl_commands_of_the_guide_give_what_it_shows(server: LiveServer, docs: None):
    examples = SHOWN.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(examples) >= 8
    key, job_id = "", ""
    for command, output in examples:
        if "$KEY" in command:
            key = server.make_key("ci", "write", "acme")
        answer = send(server, command, key, job_id)
        assert not differs(json.loads(output), answer.body), (command, answer.body)
        if "job_id" in answer.body and not job_id:
            job_id = answer.body["job_id"]
            assert "done" == server.ended(job_id)["status"]


def test_every_route_is_in_the_table(routes: dict[str, Any]):
    text = GUIDE.read_text(encoding="utf-8")
    named = {
        (method, re.sub(r"\{\w+\}", "{id}", re.sub(r"\?.*", "", path).rstrip("/")))
        for method, path in re.findall(r"(GET|POST|DELETE) (/[\w/{}?=&]*)`", text)
    }

    real = {
        (method.upper(), re.sub(r"\{\w+\}", "{id}", path))
        for path, methods in routes.items()
        for method in methods
    }
    assert real == named - {("GET", "/openapi.json")}
