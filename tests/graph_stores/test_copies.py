"""Copies of the graph on a Bolt server: late writers, crashes, damage, and a server that cannot be used."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from penstock import Penstock, config
from penstock.catalog.parts import OutsideStore
from penstock.catalog.rules import publication
from penstock.catalog.values import Phase
from penstock.errors import InvalidSetting, ServiceUnavailable
from penstock.graph_stores.neo4j import Neo4jCopy
from penstock.graph_stores.protocol import GraphStoreUrl
from penstock.handlers.outside_stores import GraphCopies
from penstock.worker.executor import Breakers
from tests.catalog.conftest import at, page, put, settle, source, take
from tests.graph_stores.conftest import GraphUnderTest, needs_bolt
from tests.servers import bolt

copied = pytest.mark.parametrize("graph", [pytest.param("sqlite+neo4j", marks=needs_bolt)], indirect=True)


def content_ids(graph: GraphUnderTest) -> list[int]:
    return [text.content_id for text in graph.catalog.graph_texts.after(-1, 100)]


@copied
def test_writing_again_changes_nothing_and_a_late_writer_loses(graph: GraphUnderTest):
    graph.index("/a.md", "ann")
    assert graph.copy is not None
    assert graph.copies is not None
    (content_id,) = content_ids(graph)
    texts = graph.catalog.graph_texts
    old = texts.copies("acme", [content_id])
    new = texts.store("acme", {content_id: graph.graphs["bob"]})
    for batch in (new, old, new, old):
        graph.copy.write(graph.copies.attach(), batch)
    assert graph.differences() == []
    assert [graph.ids(name) != [] for name in ("ann lee", "bob vane")] == [False, True]


@copied
def test_a_text_that_is_gone_is_not_written(graph: GraphUnderTest):
    put(graph.catalog, "/a.md", page("ann"), graph=True)
    (task,) = take(graph.catalog, Phase.GRAPHRAG)
    graph.remove("/a.md")
    assert graph.copies is not None
    ended = graph.copies.written([task], [publication.completed_graph(task, graph.graphs["ann"])])
    assert settle(graph.catalog, ended) == [None]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", range(6))
@copied
def test_a_crash_between_the_writes_leaves_nothing_wrong(
    graph: GraphUnderTest, step: int, monkeypatch: pytest.MonkeyPatch
):
    """The process ends before or after each write to catalog and store; another one goes on."""
    graph.index("/a.md", "ann", "bob")
    put(graph.catalog, "/a.md", page("bob", "acme"), graph=True, asked_at=at(1), now=at(1))
    writes: list[tuple[type, str]] = [
        (type(graph.catalog.graph_texts), "store"),
        (Neo4jCopy, "write"),
        (type(graph.catalog), "settle"),
        (Neo4jCopy, "remove"),
        (type(graph.catalog.outside), "forget_removals"),
    ]
    left = step

    def killed(owner: type, name: str) -> None:
        usual = getattr(owner, name)

        def count(*given: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return usual(*given, **named)

        monkeypatch.setattr(owner, name, count)

    for owner, name in writes:
        killed(owner, name)
    with suppress(Killed):
        graph.extract()
        graph.clear(2)
    assert (step == 5) is (left >= 0)
    monkeypatch.undo()
    settle(graph.catalog, [publication.released(held) for held in graph.catalog.held("w1")])
    while graph.extract():
        continue
    graph.clear(3)
    assert graph.differences() == []
    assert [graph.ids(name) != [] for name in ("ann lee", "bob vane", "porto")] == [False, True, True]


@copied
def test_a_store_restored_empty_is_filled_without_extracting(graph: GraphUnderTest):
    graph.index("/a.md", "ann", "bob")
    graph.index("/b.md", "acme", tenant="other")
    assert graph.copy is not None
    assert graph.copies is not None
    catalog_id = graph.copies.attach()
    graph.copy.clear(catalog_id)
    assert graph.differences() == ["the graph store lacks the entities of 3 texts"]
    assert graph.ids("ann lee") == []
    assert graph.copies.repair() == 3
    assert graph.ids("ann lee") != []
    assert take(graph.catalog, Phase.GRAPHRAG) == []


@copied
def test_damage_is_told_and_repaired(graph: GraphUnderTest):
    graph.index("/a.md", "ann", "bob")
    graph.index("/b.md", "acme")
    assert graph.copy is not None
    assert graph.copies is not None
    catalog_id = graph.copies.attach()
    first, second, third = content_ids(graph)
    (stray,) = graph.catalog.graph_texts.copies("acme", [first])
    graph.copy.write(catalog_id, [msgspec.structs.replace(stray, content_id=987_654)])
    graph.copy.remove(catalog_id, [second])
    graph.copy._read("MATCH (e:PenstockEntity) WHERE e.name = 'Porto' SET e.kind = 'place' RETURN 1")
    graph.copy._read(
        "CREATE (e:PenstockEntity {key: $key, catalog: $catalog, id: 5}) RETURN 1",
        key=f"{catalog_id}/5x",
        catalog=catalog_id,
    )
    assert graph.differences() == [
        "the graph store lacks the entities of 2 texts",
        "the graph store has 1 text that the catalog has not",
        "the graph store has 1 entity that no text mentions",
    ]
    assert graph.copies.repair() == 4
    assert graph.differences() == []
    assert third in content_ids(graph)


@needs_bolt
def test_catalogs_in_one_database_do_not_see_each_other(tmp_path: Path, open_copy: Callable[[], Neo4jCopy]):
    from tests.catalog.conftest import CATALOGS

    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(GraphUnderTest(CATALOGS["sqlite"](tmp_path / name), open_copy()))
    one, two = made
    one.index("/a.md", "ann")
    two.index("/a.md", "bob")
    assert [graph.reader.counts("acme").entities for graph in made] == [{"name": 2}, {"name": 2}]
    one.remove()
    assert [graph.differences() for graph in made] == [[], []]
    assert two.ids("bob vane") != []
    two.remove()
    for graph in made:
        graph.catalog.close()


# A server that cannot be used.


@contextmanager
def tcp_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def failure(url: str, timeout_s: float = 5.0) -> ServiceUnavailable:
    pytest.importorskip("neo4j")
    copy = Neo4jCopy(GraphStoreUrl(url), timeout_s)
    try:
        with pytest.raises(ServiceUnavailable) as caught:
            copy.prepare()
    finally:
        copy.close()
    assert "\n" not in caught.value.message
    assert "secret" not in caught.value.message
    return caught.value


def test_a_server_that_is_down_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    error = failure(f"bolt://ann:secret@127.0.0.1:{port}/graph")
    assert error.message.startswith(f"cannot use the graph store bolt://ann:***@127.0.0.1:{port}/graph: ")
    assert "refused" in error.message


@needs_bolt
def test_a_wrong_password_names_the_setting():
    parts = urlsplit(bolt.server_url())
    error = failure(f"bolt://root:secret@127.0.0.1:{parts.port}/graph")
    assert "refuses user and password" in error.message
    assert error.remedy == "Correct them in PENSTOCK_GRAPH_STORE."


@pytest.mark.parametrize("scheme", ["bolt+s", "neo4j+s"])
def test_a_server_without_tls_is_told(scheme: str):
    def not_tls(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with tcp_server(not_tls) as port:
        error = failure(f"{scheme}://ann:secret@127.0.0.1:{port}")
    assert "TLS error" in error.message
    assert "neo4j+ssc://" in (error.remedy or "")


def wait(over: threading.Event) -> None:
    over.wait(20)


def test_a_silent_server_is_given_up():
    over = threading.Event()
    with tcp_server(lambda _: wait(over)) as port:
        error = failure(f"bolt://ann:secret@127.0.0.1:{port}", 0.5)
        over.set()
    assert "cannot use the graph store" in error.message


@pytest.mark.parametrize("value", ["qdrant://x", "neo4j:x", "neo4j://", "http://x:7687", "x"])
def test_an_unknown_url_is_refused_as_a_setting(value: str):
    with pytest.raises(InvalidSetting) as caught:
        config.load({}, graph_store=value)
    assert "neo4j://USER:PASSWORD@HOST:PORT/DATABASE" in str(caught.value)


def test_a_port_that_is_none_is_refused():
    with pytest.raises(InvalidSetting):
        Neo4jCopy(GraphStoreUrl("neo4j://ann:secret@host:port"), 1.0)


@copied
def test_tasks_wait_for_a_store_that_is_down_and_spend_no_retry(
    graph: GraphUnderTest, request: pytest.FixtureRequest
):
    put(graph.catalog, "/a.md", page("ann"), graph=True)
    tasks = take(graph.catalog, Phase.GRAPHRAG)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = GraphStoreUrl(f"bolt://127.0.0.1:{server.getsockname()[1]}")
    down = GraphCopies(graph.catalog, Neo4jCopy(url, 1.0), Breakers())
    request.addfinalizer(down.close)
    for _ in range(5):
        (outcome,) = down.written(tasks, [publication.completed_graph(tasks[0], graph.graphs["ann"])])
        assert outcome.retry_count == 0
        assert outcome.retry_after is not None
        with pytest.raises(ServiceUnavailable):
            down.check()
    settle(graph.catalog, [publication.released(tasks[0])])
    assert graph.extract() == 1
    found = source(graph.catalog, "/a.md")
    assert found is not None
    assert graph.ids("ann lee") != []


@needs_bolt
def test_documents_commands_and_verify_use_the_store(tmp_path: Path):
    """From the file to the store, and back by the application."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("Ann Marlow of Acme Inc. went to Porto.")
    settings = config.load(
        {},
        state_dir=tmp_path / "state",
        graph=True,
        graph_store=bolt.server_url(),
        graph_store_timeout_s=60.0,
    )
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            app.wait(app.index(folder).job_id, timeout=60)
            while app._assembly.has_later_tasks():
                threading.Event().wait(0.02)
        tables = app._assembly.catalog.graph
        attached = app._assembly.catalog.outside.attached(OutsideStore.GRAPH)
        assert attached is not None
        assert attached.filled
        graph = app._assembly.graph
        assert graph._store is not tables
        (report,) = graph.entity("porto")
        assert report.node in tables.find("default", "porto")
        assert graph.counts() == tables.counts("default")
        assert list(app.verifier.differences()) == []
        copy = Neo4jCopy(GraphStoreUrl(bolt.server_url()), 60.0)
        copy.clear(attached.catalog_id)
        assert ["the graph store lacks the entities of 1 text"] == [
            one.what for one in app.verifier.differences()
        ]
        assert app.verifier.repair() == 1
        assert list(app.verifier.differences()) == []
        copy.clear(attached.catalog_id)
        copy.close()


def test_no_certificate_is_checked_against_a_name_of_another(tmp_path: Path):
    """The certificate of a server is checked with bolt+s, and the error says what is wrong with it."""
    made = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made)

    def tls(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(10)
        except OSError:
            return

    with tcp_server(tls) as port:
        error = failure(f"bolt+s://ann:secret@127.0.0.1:{port}")
    assert "TLS error: self-signed certificate" in error.message


def self_signed(place: Path) -> Path:
    import subprocess

    target = place / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    try:
        subprocess.run(
            [*command, "-keyout", str(target), "-out", str(place / "cert.pem"), "-days", "2"],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("no openssl")
    target.write_text(target.read_text() + (place / "cert.pem").read_text())
    return target
