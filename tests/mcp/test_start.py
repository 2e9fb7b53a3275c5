"""The start of the MCP server: bounded by counts, as times depend on the machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from penstock.cli.exit_codes import INTERRUPTED, PIPE_CLOSED, REFUSED

SERVER = """
import gc, json, sys
from penstock.interpreter import WithoutCollections
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
import penstock.assembly
collections.clear()
with WithoutCollections():
    import penstock.mcp.server
print(json.dumps({"collections": len(collections), "on": gc.isenabled(), "modules": sorted(sys.modules)}))
"""
NOT_NEEDED = {
    "numpy",
    "psycopg",
    "redis",
    "tokenizers",
    "onnxruntime",
    "tree_sitter",
    "PIL",
    "pypdfium2",
}


def test_the_server_starts_with_few_modules_and_no_collections():
    done = subprocess.run(
        [sys.executable, "-c", SERVER], capture_output=True, text=True, check=True, timeout=120
    )
    found = json.loads(done.stdout)

    assert found["on"]
    assert 0 == found["collections"]
    assert set() == NOT_NEEDED & set(found["modules"])
    own = [name for name in found["modules"] if name.partition(".")[0] == "penstock"]
    assert len(own) <= 125, len(own)
    assert len(found["modules"]) <= 780, len(found["modules"])


def test_ctrl_c_ends_a_server_whose_client_keeps_the_input_open(tmp_path: Path):
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    command = [sys.executable, "-m", "penstock", "--state", str(tmp_path), "mcp"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        assert 1 == json.loads(server.stdout.readline())["id"]
        try:
            server.send_signal(signal.SIGINT)
            ended = server.wait(60)
        finally:
            server.kill()
        assert server.stderr is not None
        assert (INTERRUPTED, "interrupted") == (ended, server.stderr.read().strip())


def test_the_server_ends_without_a_traceback_when_its_client_is_gone(tmp_path: Path):
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    command = [sys.executable, "-m", "penstock", "--state", str(tmp_path), "mcp"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        server.stdout.close()
        try:
            _, told = server.communicate(json.dumps(request) + "\n", timeout=60)
        finally:
            server.kill()
        assert (PIPE_CLOSED, "") == (server.returncode, told)


def test_an_output_that_cannot_be_written_is_named_in_one_line(tmp_path: Path):
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    command = [sys.executable, "-m", "penstock", "--state", str(tmp_path), "mcp"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command,
            input=json.dumps(request) + "\n",
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    told = "error: standard output cannot be written (No space left on device) (ERR_OUTPUT)."
    assert (REFUSED, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert done.stderr.startswith(told)
