"""``penstock keys``, and ``penstock serve`` where it refuses to start."""

from __future__ import annotations

import importlib.util
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run


def test_a_key_is_made_listed_and_revoked(run: Run, ask: Any, state: Path):
    assert "There are no keys" in run("keys", "list").output

    made = ask("keys", "create", "ci", "--scope", "write", "--tenant", "acme", "--tenant", "globex")
    shown = run("keys", "create", "reader")
    quiet = run("-q", "keys", "add", "other").output.strip()

    assert (["acme", "globex"], "write") == (made["tenants"], made["scope"])
    assert made["key"].startswith("penstock_")
    assert "cannot be shown again" in shown.output
    assert quiet.startswith("penstock_")
    listed = run("keys", "list").output
    assert all(word in listed for word in ("ci", "acme, globex", "reader", "all", "write"))
    assert not any(key in listed for key in (made["key"], quiet))
    assert {"revoked": "ci", "left": 2} == ask("keys", "revoke", "ci")
    assert ["other", "reader"] == [key["name"] for key in ask("keys", "list")["keys"]]
    audit = [json.loads(line) for line in (state / "audit.jsonl").read_text().splitlines()]
    assert ["create key"] * 3 + ["revoke key"] == [line["action"] for line in audit]


def test_roots_of_a_key_are_real_folders_or_sites(run: Run, ask: Any, tmp_path: Path):
    (tmp_path / "acme").mkdir()
    (tmp_path / "link").symlink_to("acme")
    roots = (
        "--root",
        f"{tmp_path}/link",
        "--root",
        f"{tmp_path}/acme/",
        "--root",
        "HTTPS://Docs.Example.org:443",
    )

    made = ask("keys", "create", "ci", "--tenant", "acme", *roots)

    assert [f"{tmp_path}/acme", "https://docs.example.org"] == made["roots"]
    run("keys", "create", "bare", "--tenant", "acme")
    run("keys", "create", "all")
    assert [made["roots"], [], []] == [
        next(key["roots"] for key in ask("keys", "list")["keys"] if key["name"] == name)
        for name in ("ci", "bare", "all")
    ]
    listed = run("keys", "list").output
    assert f"{tmp_path}/acme, https://docs.example.org" in listed
    assert "none: uploads and notes only" in listed
    for root in (f"{tmp_path}/none", f"{tmp_path}/acme/file", ""):
        assert "ERR_PATH_NOT_FOUND" in run("keys", "create", "x", "--root", root, code=1).output
    for root, code in (
        ("https://docs.example.org/handbook", "ERR_INVALID_REQUEST"),
        ("https://user@docs.example.org", "ERR_WEB_URL"),
    ):
        assert code in run("keys", "create", "x", "--root", root, code=1).output
    assert "x" not in [key["name"] for key in ask("keys", "list")["keys"]]


def test_the_end_of_the_last_key_is_said(run: Run):
    run("keys", "create", "ci")
    run("keys", "create", "other")

    assert "last key" not in run("keys", "revoke", "other").stderr
    assert "That was the last key: a server now refuses every request." in run("keys", "revoke", "ci").stderr
    assert "There are no keys, and every request needs one" in run("keys", "list").output


def test_refusals_of_keys(run: Run):
    run("keys", "create", "ci")

    assert "ERR_KEY_EXISTS" in run("keys", "create", "ci", code=5).output
    assert "ERR_INVALID_NAME" in run("keys", "create", "a b", code=1).output
    assert "ERR_UNKNOWN_KEY" in run("keys", "revoke", "none", code=4).output


def test_no_server_is_stopped_where_none_runs(run: Run):
    assert "ERR_SERVER_NOT_RUNNING" in run("stop", code=4).output


def test_a_taken_port_is_named(run: Run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        answer = run("serve", "--no-worker", "--port", port, code=1).output

    assert "ERR_SERVER_FAILED" in answer
    assert f"port {port}" in answer


def test_a_certificate_needs_its_private_key(run: Run, tmp_path: Path):
    certificate = str(tmp_path / "mill.pem")
    Path(certificate).write_text("none")

    for more in ((), ("--tls-key", certificate)):
        answer = run("serve", "--tls-certificate", certificate, *more, code=3)
        assert "ERR_INVALID_SETTING" in answer.output


def test_without_the_extra_the_command_that_installs_it_is_named(run: Run, monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fastapi" else found(name))

    answer = run("serve", code=3).output

    assert "ERR_DRIVER_MISSING" in answer
    assert "pip install" in answer
    assert "uvicorn" in answer
