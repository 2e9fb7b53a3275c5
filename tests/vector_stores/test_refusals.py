"""Stores that cannot be used: each error is one line, names the store without its password, and a remedy."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock import config
from penstock.errors import DriverMissing, InvalidSetting, PenstockError, ServiceUnavailable
from penstock.testing.vector_stores import point
from penstock.vector_stores.client_store import locked_folder
from penstock.vector_stores.factory import open_vector_store
from penstock.vector_stores.protocol import PointFilter, VectorStore, VectorStoreUrl

SECRET = "pass-word-1"
SERVERS = ["qdrant", "chroma", "pgvector"]
ON_HTTP = ["qdrant", "chroma"]
# Looked for, not imported: every worker of a run collects this file, and few run it.
CLIENTS = ("qdrant_client", "chromadb")
pytestmark = pytest.mark.skipif(not all(map(find_spec, CLIENTS)), reason="needs the clients of vector stores")


class _Refusing(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.send_response(401)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - as the server calls them

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def http_server() -> Iterator[int]:
    """Serve a server that refuses every key."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@contextmanager
def silent_server() -> Iterator[int]:
    """Listen, and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def opened(url: str, timeout_s: float = 20.0) -> Iterator[VectorStore]:
    settings = config.load({}, vector_store=url, vector_store_timeout_s=timeout_s)
    store = open_vector_store(settings)
    assert store is not None
    yield store
    store.close()


def refusal(url: str, timeout_s: float = 20.0) -> ServiceUnavailable:
    """The error of a store, the same for all that is done with it."""
    calls: list[Callable[[VectorStore], object]] = [
        lambda store: store.upsert("penstock_x", [point(1)]),
        lambda store: store.search("penstock_x", [1.0], limit=1, where=PointFilter()),
        lambda store: store.check(),
    ]
    found = []
    with opened(url, timeout_s) as store:
        for call in calls:
            with pytest.raises(ServiceUnavailable) as refused:
                call(store)
            found.append(refused.value)
    for error in found:
        shown(error)
    return found[0]


def shown(error: PenstockError) -> None:
    text = f"{error.message} {error.remedy}"
    assert "\n" not in text
    assert SECRET not in text
    assert error.remedy


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.mark.parametrize("engine", SERVERS)
def test_a_store_that_is_down(engine: str):
    error = refusal(f"{engine}://u:{SECRET}@127.0.0.1:{closed_port()}")
    assert f"{engine}://u:***@127.0.0.1" in error.message
    assert "refused" in error.message


@pytest.mark.parametrize("engine", ON_HTTP)
def test_a_wrong_key(engine: str):
    with http_server() as port:
        error = refusal(f"{engine}://:{SECRET}@127.0.0.1:{port}")
    assert "refuses the key (401)" in error.message
    assert "Correct the key in PENSTOCK_VECTOR_STORE." == error.remedy


def test_a_wrong_password_of_pgvector():
    from tests.servers import postgres

    with postgres._connection().cursor() as cursor:
        cursor.execute(
            "DO $$ BEGIN CREATE ROLE guarded LOGIN PASSWORD 'right';"
            " EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    host = postgres.shared_url().rpartition("@")[2]
    error = refusal(f"pgvector://guarded:{SECRET}@{host}")
    assert "refuses the password" in error.message
    assert "Correct the user and password in PENSTOCK_VECTOR_STORE." == error.remedy


@pytest.mark.parametrize("engine", ON_HTTP)
def test_a_server_without_tls(engine: str):
    with http_server() as port:
        error = refusal(f"{engine}+https://:{SECRET}@127.0.0.1:{port}")
    assert "TLS error: " in error.message
    assert "may not speak TLS" in error.remedy


def test_a_postgres_server_without_tls():
    from tests.servers import postgres

    error = refusal(postgres.shared_url().replace("postgresql", "pgvector", 1) + "?sslmode=require")
    assert "SSL" in error.message


@pytest.mark.parametrize("engine", SERVERS)
def test_a_server_that_does_not_answer(engine: str):
    with silent_server() as port:
        error = refusal(f"{engine}://127.0.0.1:{port}", timeout_s=1.0)
    assert "did not answer in time" in error.message or "timeout" in error.message


@pytest.mark.parametrize(
    "url",
    [
        "weaviate://127.0.0.1",
        "qdrant:127.0.0.1",
        "qdrant+local:relative/folder",
        "chroma+local:",
        "memory://",
        "",
        "pgvector+https://x",
        f"qdrant+ftp://:{SECRET}@127.0.0.1",
    ],
)
def test_an_unknown_url_is_refused_by_the_settings(url: str):
    with pytest.raises(InvalidSetting, match="qdrant://HOST:PORT") as refused:
        config.load({}, vector_store=url)
    shown(refused.value)


@pytest.mark.parametrize(
    "url", [f"qdrant://u:{SECRET}@127.0.0.1:port", "qdrant://127.0.0.1/path", "chroma://", "chroma://x?y=1"]
)
def test_an_address_that_is_none_is_refused_before_it_is_used(url: str):
    with pytest.raises(InvalidSetting, match="expected a host") as refused:
        open_vector_store(config.load({}, vector_store=url))
    shown(refused.value)


def test_pgvector_alone_needs_a_catalog_in_postgres(tmp_path: Path):
    with pytest.raises(InvalidSetting, match="the catalog is not in PostgreSQL"):
        open_vector_store(config.load({}, vector_store="pgvector", state_dir=tmp_path))


@pytest.mark.parametrize(("engine", "module"), [("qdrant", "qdrant_client"), ("chroma", "chromadb")])
def test_a_client_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, engine: str, module: str):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DriverMissing, match=module) as refused:
        open_vector_store(config.load({}, vector_store=f"{engine}://127.0.0.1"))
    assert "pip install" in refused.value.remedy


@pytest.mark.parametrize("engine", ["qdrant+local", "chroma+local"])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, engine: str):
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    assert "can be written by others" in refusal(f"{engine}:{folder}").message
    folder.chmod(0o700)
    with opened(f"{engine}:{folder}") as store:
        assert store.check()


def test_a_folder_in_use_is_waited_for(tmp_path: Path):
    with (
        locked_folder(tmp_path / "store"),
        pytest.raises(ServiceUnavailable, match="other processes use"),
        locked_folder(tmp_path / "store", wait_s=0.05),
    ):
        pass
    with locked_folder(tmp_path / "store", wait_s=0.05):
        pass


def test_a_path_that_is_no_folder(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert "cannot use the folder" in refusal(f"qdrant+local:{tmp_path}/file").message


def test_passwords_are_masked_in_settings_and_addresses():
    url = f"qdrant+https://:{SECRET}@10.0.0.1:6333"
    settings = config.load({}, vector_store=url)
    reported = {one.name: one.value for one in config.describe(settings)}
    assert "qdrant+https://:***@10.0.0.1:6333" == reported["vector_store"] == VectorStoreUrl(url).masked
    assert SECRET not in repr(settings)
    assert SECRET not in repr(VectorStoreUrl(url))
