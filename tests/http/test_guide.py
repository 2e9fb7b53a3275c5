"""The curl commands of the HTTP guide: sent to a live server, they give what the guide shows."""

from __future__ import annotations

import functools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.http.live_server import Answer, LiveServer, until

SERVE = ("--processes", "1", "--app", "mill_tasks")
FILES = {
    "mill_tasks.py": """
from pathlib import Path

from penstock import Penstock

app = Penstock(state_dir=Path(__file__).parent / "state")

@app.function("double", requires=["n"])
def double(payload):
    return payload["n"] * 2
"""
}
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "http.md"
SHOWN = re.compile(r"^\$ (curl .+)\n(\{.+\})$", re.MULTILINE)
OPTIONS = {"-X": "method", "-H": "header", "-d": "body", "-F": "form", "--data-binary": "body"}
VOLATILE = frozenset(["id", "job_id", "path", "snippet", "queue_position", "queue_length"])


def send(server: LiveServer, command: str, **names: str) -> Answer:
    """Send what curl would send."""
    for name, value in names.items():
        command = command.replace(name, value)
    words = shlex.split(command)[1:]
    given: dict[str, list[str]] = {"method": [], "header": [], "body": [], "form": []}
    url = ""
    while words:
        word = words.pop(0)
        if word in OPTIONS:
            given[OPTIONS[word]].append(words.pop(0))
        else:
            url = word
    headers = dict(header.split(": ", 1) for header in given["header"])
    body = _content(server, given["body"][0]) if given["body"] else None
    if given["form"]:
        body = b"".join(_part(server, *field.split("=", 1)) for field in given["form"]) + b"--cut--\r\n"
        headers["Content-Type"] = "multipart/form-data; boundary=cut"
    method = given["method"][0] if given["method"] else "POST" if body else "GET"
    return server.ask(method, url.removeprefix("localhost:8765"), body, headers=headers)


def _content(server: LiveServer, text: str) -> bytes:
    return (server.folder / text[1:]).read_bytes() if text.startswith("@") else text.encode()


def _part(server: LiveServer, name: str, text: str) -> bytes:
    named = f'; filename="{Path(text).name}"' if text.startswith("@") else ""
    head = f'--cut\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'
    return head.encode() + _content(server, text) + b"\r\n"


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
    (folder / "mill.py").write_text(
        "class Mill:\n    def grind(self):\n        return lift_gate()\n\n\ndef lift_gate():\n    return 1\n"
    )


def test_the_curl_commands_of_the_guide_give_what_it_shows(server: LiveServer, docs: None):
    examples = SHOWN.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(examples) >= 30
    names: dict[str, str] = {"$KEY": "", "JOB_ID": "", "SOURCE_ID": ""}
    for command, output in examples:
        if "$KEY" in command:
            names["$KEY"] = server.make_key("ci", "write", "acme")
        answer = send(server, command, **names)
        if "/graph/" in command:
            # Entities are extracted after the job has ended.
            again = functools.partial(send, server, command, **names)
            answer = until(again, lambda one: one.status == 200)
        assert not differs(json.loads(output), answer.body), (command, answer.body)
        if answer.status == 202:
            # The next examples show what this one did.
            names["JOB_ID"] = names["JOB_ID"] or answer.body["job_id"]
            assert "done" == server.ended(answer.body["job_id"])["status"], command
        if "/documents?" in command:
            names["SOURCE_ID"] = answer.body["documents"][0]["source_id"]


def test_every_route_has_a_curl_command(routes: dict[str, Any]):
    text = GUIDE.read_text(encoding="utf-8")
    sent = re.findall(r"curl (.*?)'?localhost:8765(/[^\s'?]*)(.*)", text)
    commands = {
        (
            re.findall(r"-X (\w+)", before)
            or ["POST" if re.search(r" (-d|-F|--data-binary) ", after) else "GET"]
        )[0]
        + " "
        + path.rstrip("/")
        for before, path, after in sent
    }

    for path, methods in routes.items():
        pattern = re.sub(r"\{\w+\}", r"[\\w]+", path)
        for method in methods:
            assert any(re.fullmatch(f"{method.upper()} {pattern}", one) for one in commands), (method, path)


def test_every_route_is_in_the_table(routes: dict[str, Any]):
    text = GUIDE.read_text(encoding="utf-8")
    named = {
        (method, re.sub(r"\{\w+\}", "{id}", re.sub(r"\?.*", "", path).rstrip("/")))
        for method, path in re.findall(r"(GET|POST|PUT|PATCH|DELETE) (/[\w/{}?=&-]*)`", text)
    }

    real = {
        (method.upper(), re.sub(r"\{\w+\}", "{id}", path))
        for path, methods in routes.items()
        for method in methods
    }
    assert real == named - {("GET", "/openapi.json")}
