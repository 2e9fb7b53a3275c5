"""The guard itself, where a live server would take too long: bodies that never arrive."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.http import guard
from penstock.http.guard import Guard, GuardOptions
from penstock.service.keys import Keys


def ask(
    tmp_path: Path, headers: dict[str, str], messages: list[dict[str, Any]], path: str = "/content"
) -> tuple[int, str]:
    """Status and code with which a request is refused; after the messages nothing comes."""
    sent: list[Any] = []
    left = iter(messages)

    async def receive() -> Any:
        message = next(left, None)
        if message is None:
            await asyncio.Event().wait()
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    async def never(*_: object) -> None:
        raise AssertionError("the request reached a route")

    options = GuardOptions.of(
        config.load({}, state_dir=tmp_path), Keys(tmp_path), "127.0.0.1", requires_keys=True
    )
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(Guard(never, options)(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])["code"]


@pytest.mark.parametrize(
    "headers",
    [{"host": "localhost", "content-length": "9"}, {"host": "localhost", "transfer-encoding": "chunked"}],
)
def test_a_body_that_does_not_arrive_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
):
    monkeypatch.setattr(guard, "BODY_TIME_S", 0.05)
    first = [{"type": "http.request", "body": b"{", "more_body": True}]

    assert (408, "ERR_REQUEST_TOO_SLOW") == ask(tmp_path, headers, first)


def test_a_sender_without_a_key_sends_no_large_body(tmp_path: Path):
    """A thousand of them would fill the memory."""
    headers = {"host": "localhost", "transfer-encoding": "chunked"}
    parts: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"x" * 9_000, "more_body": True},
        {"type": "http.request", "body": b"x" * 9_000},
    ]

    assert (413, "ERR_REQUEST_TOO_LARGE") == ask(tmp_path, headers, parts, "/session")


def test_a_sender_that_leaves_is_given_up(tmp_path: Path):
    headers = {"host": "localhost", "content-length": "9"}

    assert (408, "ERR_REQUEST_TOO_SLOW") == ask(tmp_path, headers, [{"type": "http.disconnect"}])


def test_a_damaged_file_of_keys_refuses_every_request(tmp_path: Path):
    (tmp_path / "keys.json").write_text("{")

    assert (503, "ERR_STATE_DAMAGED") == ask(tmp_path, {"host": "localhost"}, [])
