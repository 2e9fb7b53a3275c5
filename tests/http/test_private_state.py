"""What a server and its worker leave in the state directory is for their account only, whatever the umask."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock, config
from penstock.service.keys import Keys
from tests.http.live_server import LiveServer, until
from tests.pipeline.sample_documents import pdf

SOURCE = Path(__file__).resolve().parents[2] / "src" / "penstock"
FOR_OTHERS = {
    "state_directory": "make_private itself, and the user's configuration directory",
    "redis_contract.rags": "folders of files that other programs deliver and take",
    "service.pages": "an export into a folder of the user",
    "pipeline.embed.fastembed": "models, which hold nothing private and may be shared",
    "pipeline.embed.minilm.model_files": "the same",
}


@pytest.fixture
def open_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


def readable_by_others(state: Path) -> dict[str, str]:
    found = {path.relative_to(state).as_posix(): path.lstat().st_mode for path in state.rglob("*")}
    return {
        name: oct(stat.S_IMODE(mode))
        for name, mode in found.items()
        if not stat.S_ISSOCK(mode) and stat.S_IMODE(mode) & 0o077
    }


@pytest.mark.parametrize("url", ["sqlite", "jsonl"])
@pytest.mark.usefixtures("open_umask")
def test_nothing_in_the_state_directory_is_for_others(tmp_path: Path, url: str):
    state = tmp_path / "above" / "state"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mill.md").write_text("# The mill\n\nThe wheel turns.\n")
    store = f"sqlite:///{state}/a/b/queue.db" if url == "sqlite" else f"jsonl://{state}/a/b"
    settings = config.load({}, url=store, state_dir=state, embedder="hashing")
    with Penstock(settings=settings) as app, app.worker_thread():
        app.wait(app.index(tmp_path / "docs").job_id, timeout=60)
        assert ["mill.md"] == [Path(hit.path).name for hit in app.search("wheel")]
    Keys(state).create("ada", "admin")

    assert {} == readable_by_others(state)
    assert 0o700 == stat.S_IMODE(state.parent.stat().st_mode)


@pytest.mark.long
@pytest.mark.usefixtures("open_umask")
def test_a_server_leaves_nothing_for_others(tmp_path: Path):
    server = LiveServer(tmp_path)
    try:
        assert 202 == server.ask("POST", "/files?name=gate.pdf", pdf("The gate opens.")).status
        ask = {"query": "gate", "mode": "keyword"}
        (hit,) = until(lambda: server.ask("POST", "/search", ask).body["hits"], bool)
        assert 200 == server.raw("GET", f"/documents/{hit['source_id']}/pages/1/image")[0]
    finally:
        server.stop()

    assert {} == readable_by_others(server.state)


def test_directories_are_made_in_one_way():
    makers = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("mkdir", "makedirs")
    }

    assert set(FOR_OTHERS) == makers
