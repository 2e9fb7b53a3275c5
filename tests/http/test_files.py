"""Files over HTTP: pages and their pictures, and uploads with their limits."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from PIL import Image

from penstock.service.pages import WIDTHS
from tests.http.live_server import WAIT_S, Answer, LiveServer, until
from tests.pipeline.sample_documents import pdf

SERVE = ("--processes", "1")
SETTINGS = {"max_file_mb": "1"}


class Senders(NamedTuple):
    admin: str
    acme: str
    reader: str


@pytest.fixture(scope="module")
def keys(server: LiveServer) -> Senders:
    return Senders(
        server.make_key("admin", "admin"),
        server.make_key("acme", "write", "acme"),
        server.make_key("reader", "read", "acme"),
    )


class Indexed(NamedTuple):
    source_id: str
    path: Path


@pytest.fixture(scope="module")
def manual(server: LiveServer, keys: Senders) -> Indexed:
    """A PDF of two pages, of the tenant ``default``."""
    path = server.folder / "manual.pdf"
    path.write_bytes(pdf("The mill takes in water.", "The gate is closed at night."))
    (server.folder / "plain.md").write_text("Plain text.")
    for name in ("manual.pdf", "plain.md"):
        assert (
            "done"
            == server.ended(server.index(name, key=keys.admin).body["job_id"], key=keys.admin)["status"]
        )
    return Indexed(source(server, keys.admin, str(path)), path)


def source(server: LiveServer, key: str, path: str) -> str:
    (found,) = server.ask("GET", f"/documents?path={quote(path)}", key=key).body["documents"]
    return str(found["source_id"])


def image(server: LiveServer, source_id: str, key: str, page: int = 1, width: int = 300) -> Answer:
    answer = server.raw("GET", f"/documents/{source_id}/pages/{page}/image?width={width}", key=key)
    return answer._replace(body=json.loads(answer.body)) if answer.status != 200 else answer


def form(fields: dict[str, str], name: str, data: bytes) -> tuple[bytes, dict[str, str]]:
    parts = [
        f'--cut\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = f'--cut\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return b"".join([*parts, head, data, b"\r\n--cut--\r\n"]), {
        "Content-Type": "multipart/form-data; boundary=cut"
    }


def send(server: LiveServer, key: str, name: str, data: bytes, **fields: str) -> Answer:
    body, headers = form(fields, name, data)
    return server.ask("POST", "/files", body, key=key, headers=headers)


def kept(server: LiveServer) -> list[str]:
    """Files of uploads, and what is left of others."""
    folder = server.state / "uploads"
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(str(path.relative_to(folder)) for path in found)


def test_a_page_has_its_text(server: LiveServer, keys: Senders, manual: Indexed):
    page = server.ask("GET", f"/documents/{manual.source_id}/pages/2", key=keys.admin).body

    assert {"text", "confidence", "engine", "warnings", "page_count"} < set(page)
    assert ("The gate is closed at night.", 2, 2) == (page["text"].strip(), page["page"], page["page_count"])
    for number in ("0", "3", "x", "99999999999"):
        answer = server.ask("GET", f"/documents/{manual.source_id}/pages/{number}", key=keys.admin)
        assert answer.status in (404, 422), number


def test_a_page_is_drawn_once_and_then_kept(server: LiveServer, keys: Senders, manual: Indexed):
    drawn = image(server, manual.source_id, keys.admin)
    content = manual.path.read_bytes()
    manual.path.unlink()
    try:
        again = image(server, manual.source_id, keys.admin)
        other = image(server, manual.source_id, keys.admin, width=WIDTHS[0])
        gone = image(server, manual.source_id, keys.admin, width=WIDTHS[0] + 1)
        manual.path.write_bytes(content + b"\n")
        changed = image(server, manual.source_id, keys.admin, width=WIDTHS[1])
    finally:
        manual.path.write_bytes(content)

    assert (200, "image/png", "nosniff") == (
        drawn.status,
        drawn.headers["content-type"],
        drawn.headers["x-content-type-options"],
    )
    assert WIDTHS[0] >= Image.open(io.BytesIO(drawn.body)).width > 300
    assert drawn.body == again.body == other.body
    assert (404, "ERR_NO_PAGE_IMAGE") == (gone.status, gone.code) == (changed.status, changed.code)
    assert "No such file" in gone.body["detail"]
    assert "changed" in changed.body["detail"]


def test_a_page_of_text_is_not_drawn(server: LiveServer, keys: Senders, manual: Indexed):
    answer = image(server, source(server, keys.admin, str(server.folder / "plain.md")), keys.admin)

    assert (404, "ERR_NO_PAGE_IMAGE") == (answer.status, answer.code)
    assert "md files are not drawn" in answer.body["detail"]


def test_chunks_have_frames_on_the_picture_of_their_page(server: LiveServer, keys: Senders, manual: Indexed):
    path = f"/documents/{manual.source_id}"
    (chunk,) = server.ask("GET", f"{path}/tree", key=keys.admin).body["pages"][1]["chunks"]
    (frame,) = server.ask("GET", f"{path}/pages/2/frames", key=keys.admin).body["frames"]
    ((left, top, right, bottom),) = frame["boxes"]
    assert chunk["chunk_id"] == frame["chunk_id"]
    assert 0 < left < right < 1 > 0.2 > bottom > top > 0
    assert 404 == server.ask("GET", f"{path}/pages/3/frames", key=keys.admin).status
    plain = source(server, keys.admin, str(server.folder / "plain.md"))
    assert [] == server.ask("GET", f"/documents/{plain}/pages/1/frames", key=keys.admin).body["frames"]


def test_pages_of_another_tenant_do_not_exist(server: LiveServer, keys: Senders, manual: Indexed):
    page = server.ask("GET", f"/documents/{manual.source_id}/pages/1", key=keys.acme)

    frames = server.ask("GET", f"/documents/{manual.source_id}/pages/1/frames", key=keys.acme)
    for answer in (page, frames, image(server, manual.source_id, keys.acme)):
        assert (404, "ERR_UNKNOWN_DOCUMENT") == (answer.status, answer.code)


def test_an_upload_is_indexed_replaced_and_removed_with_its_document(server: LiveServer, keys: Senders):
    first = send(server, keys.acme, "wheel.md", b"The wheel turns.", collection="parts", priority="9")
    assert 202 == first.status, first.body
    job = server.ended(first.body["job_id"], key=keys.acme)
    second = server.ask(
        "POST", "/files?name=wheel.md&collection=parts", b"The wheel stands still.", key=keys.acme
    )
    assert "done" == server.ended(second.body["job_id"], key=keys.acme)["status"]

    assert ("done", "acme", "parts", 9) == tuple(
        job[name] for name in ("status", "tenant_id", "collection", "priority")
    )
    assert (str(server.state / "uploads/acme/parts/main/wheel.md"), 16) == (
        first.body["path"],
        first.body["size"],
    )
    wheel = source(server, keys.acme, first.body["path"])
    page = server.ask("GET", f"/documents/{wheel}/pages/1", key=keys.acme).body
    assert "The wheel stands still." == page["text"].strip()
    assert [] == server.ask("POST", "/search", {"query": '"wheel"'}, key=keys.admin).body["hits"]

    removed = server.ask("DELETE", f"/documents/{wheel}", key=keys.acme)
    server.ended(removed.body["job_id"], key=keys.acme)

    until(lambda: Path(first.body["path"]).exists(), lambda there: not there)
    assert not any("wheel" in name for name in kept(server))


def test_a_file_uploaded_after_the_removal_of_its_document_stays(server: LiveServer, keys: Senders):
    first = send(server, keys.acme, "again.md", b"The first.")
    server.ended(first.body["job_id"], key=keys.acme)
    server.ask("POST", "/queue/pause", {}, key=keys.acme)
    again = source(server, keys.acme, first.body["path"])
    removed = server.ask("DELETE", f"/documents/{again}", key=keys.acme)
    second = send(server, keys.acme, "again.md", b"The second.")
    server.ask("POST", "/queue/resume", {}, key=keys.acme)

    for answer in (removed, second):
        assert "done" == server.ended(answer.body["job_id"], key=keys.acme)["status"]
    assert b"The second." == Path(first.body["path"]).read_bytes()
    found = server.ask(
        "GET", f"/documents/{source(server, keys.acme, first.body['path'])}/pages/1", key=keys.acme
    )
    assert "The second." == found.body["text"].strip()


def test_tenants_and_collections_keep_files_of_the_same_name_apart(server: LiveServer, keys: Senders):
    answers = [
        send(server, keys.acme, "same.md", b"Acme's.", collection="a"),
        send(server, keys.acme, "same.md", b"Acme's other.", collection="b"),
        send(server, keys.admin, "same.md", b"Of another.", collection="a", tenant_id="../evil"),
    ]

    assert [202] * 3 == [answer.status for answer in answers]
    paths = {Path(answer.body["path"]) for answer in answers}
    assert 3 == len(paths)
    assert all(path.is_relative_to(server.state / "uploads") and path.is_file() for path in paths)
    foreign = send(server, keys.acme, "same.md", b"x", tenant_id="default")
    assert (403, "ERR_NOT_ALLOWED") == (foreign.status, foreign.code)
    outside = server.index(answers[0].body["path"], key=keys.admin)
    assert (400, "ERR_PATH_OUTSIDE") == (outside.status, outside.code)


@pytest.mark.parametrize(
    "name",
    ["../mill.md", "/etc/passwd", "..", ".", ".hidden", "a/b.md", "a\\b.md", "a\0.md", "a\nb", "", "x" * 201],
)
def test_a_name_that_is_not_a_plain_name_is_refused(server: LiveServer, keys: Senders, name: str):
    before = kept(server)

    raw = server.ask("POST", f"/files?name={quote(name)}", b"x", key=keys.acme)
    assert (422, True) == (raw.status, "name" in raw.body["detail"])
    if not {*name} & {*"\0\n\\"}:
        assert 422 == send(server, keys.acme, name, b"x").status
    assert before == kept(server)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"depth": "x"}, "depth"),
        ({"colection": "a"}, "colection"),
        ({"priority": "11"}, "priority"),
        ({"run_at": "soon"}, "run_at"),
        ({"folder_path": "/etc"}, "folder_path"),
    ],
)
def test_a_wrong_field_of_a_form_is_named_and_nothing_is_kept(
    server: LiveServer, keys: Senders, fields: dict[str, str], named: str
):
    before = kept(server)

    answer = send(server, keys.acme, "wrong.md", b"x", **fields)

    assert 422 == answer.status
    assert named in answer.body["detail"]
    assert before == kept(server)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "multipart/form-data; boundary=cut"),
        (b"--cut--\r\n", "multipart/form-data; boundary=cut"),
        (
            b"--cut\r\nContent-Disposition: form-data; name=file\r\n\r\nx\r\n--cut--\r\n",
            "multipart/form-data; boundary=cut",
        ),
        (b"--cut\r\n\r\nx\r\n--cut--\r\n", "multipart/form-data; boundary=cut"),
        (
            b"--cut\r\nContent-Disposition: form-data; name=file; filename=a.md\r\n\r\nx",
            "multipart/form-data; boundary=cut",
        ),
        (b"--cut\r\n" + b"a" * 10_000, "multipart/form-data; boundary=cut"),
        (b"x", "multipart/form-data"),
        (b"x", "application/octet-stream"),
    ],
)
def test_a_body_that_is_no_upload_is_refused(
    server: LiveServer, keys: Senders, body: bytes, content_type: str
):
    before = kept(server)

    answer = server.ask("POST", "/files", body, key=keys.acme, headers={"Content-Type": content_type})

    assert (422, "ERR_INVALID_REQUEST") == (answer.status, answer.code)
    assert before == kept(server)


def test_a_file_above_the_limit_is_refused(server: LiveServer, keys: Senders):
    before = kept(server)

    def pieces() -> Iterator[bytes]:
        yield from [b"x" * 65_536] * 20

    stated = server.ask("POST", "/files?name=large.txt", b"x" * 1_100_000, key=keys.acme)
    chunked = server.ask("POST", "/files?name=large.txt", pieces(), key=keys.acme)
    formed = send(server, keys.acme, "large.txt", b"x" * 1_100_000)

    for answer in (stated, chunked, formed):
        assert (413, "ERR_REQUEST_TOO_LARGE") == (answer.status, answer.code)
    assert before == kept(server)


def test_a_page_of_another_site_cannot_upload(server: LiveServer, keys: Senders):
    before = kept(server)

    answer = server.ask(
        "POST", "/files?name=a.md", b"x", key=keys.acme, headers={"Origin": "https://evil.example"}
    )

    assert (403, "ERR_ORIGIN_REFUSED") == (answer.status, answer.code)
    assert before == kept(server)


def test_neither_contents_nor_keys_are_in_logs_and_errors(server: LiveServer, keys: Senders):
    secret = "Swordfish-2741"
    broken = send(server, keys.acme, "broken.pdf", f"%PDF-1.7 {secret}".encode())
    job = server.ended(broken.body["job_id"], key=keys.acme)
    refused = [
        send(server, keys.acme, "broken.pdf", secret.encode(), chunk_size="x"),
        server.ask("POST", "/files?name=..", secret.encode(), key=keys.acme),
        server.ask("POST", "/content", {"content": secret, "tag": "a//b"}, key=keys.acme),
        server.ask("POST", "/content", f'{{"content": "{secret}"'.encode(), key=keys.acme),
        server.ask("POST", "/search", {"query": secret, "limit": "x"}, key=keys.acme),
        server.ask("GET", f"/documents?key={keys.admin}", key=keys.acme),
    ]

    assert "failed" == job["status"]
    assert all(400 <= answer.status < 500 for answer in refused)
    texts = [str(answer.body) for answer in refused] + [str(job), server.log.read_text()]
    texts.append((server.state / "audit.jsonl").read_text())
    for text in texts:
        assert secret not in text
        assert not any(key in text for key in keys)


def test_documents_that_wait_for_a_phase_can_be_listed(server: LiveServer, keys: Senders, manual: Indexed):
    for phase in ("vector", "graphrag"):
        found = server.ask("GET", f"/documents?ready_for={phase}&collection=none", key=keys.admin)
        assert (200, []) == (found.status, found.body["documents"])


def test_an_upload_needs_a_key_that_writes(server: LiveServer, keys: Senders):
    before = kept(server)

    assert 401 == server.ask("POST", "/files?name=a.md", b"x").status
    assert 403 == server.ask("POST", "/files?name=a.md", b"x", key=keys.reader).status
    assert before == kept(server)


def test_a_sender_that_leaves_in_the_middle_leaves_nothing(server: LiveServer, keys: Senders):
    before = kept(server)
    head = (
        f"POST /files?name=cut.md HTTP/1.1\r\nHost: {server.address}\r\nAuthorization: Bearer {keys.acme}\r\n"
        "Content-Length: 500000\r\n\r\n"
    )
    with socket.create_connection(server.address.split(":"), WAIT_S) as connection:  # type: ignore[arg-type]
        connection.sendall(head.encode() + b"x" * 100_000)
        until(lambda: kept(server), lambda found: found != before)

    until(lambda: kept(server), lambda found: found == before)


def test_an_upload_that_the_queue_refuses_changes_nothing(tmp_path: Path):
    started = LiveServer(tmp_path, "--no-worker", max_queue="1")
    try:
        first = started.ask("POST", "/files?name=a.md", b"one")
        again = started.ask("POST", "/files?name=a.md", b"two")
        other = started.ask("POST", "/files?name=b.md", b"three")
        changed = started.ask("POST", "/files?name=a.md&chunk_size=64", b"four")

        assert [202, 202, 429, 429] == [answer.status for answer in (first, again, other, changed)]
        assert first.body["job_id"] == again.body["job_id"]
        assert b"two" == Path(first.body["path"]).read_bytes()
        assert ["default/default/main/a.md"] == kept(started)
    finally:
        started.stop()


def test_a_server_that_was_killed_during_uploads_starts_clean(tmp_path: Path):
    started = LiveServer(tmp_path, "--no-worker")
    try:
        with socket.create_connection(started.address.split(":"), WAIT_S) as connection:  # type: ignore[arg-type]
            head = (
                f"POST /files?name=a.md HTTP/1.1\r\nHost: {started.address}\r\nContent-Length: 900000\r\n\r\n"
            )
            connection.sendall(head.encode() + b"x" * 100_000)
            until(lambda: kept(started), bool)
            started.kill()
        # As if the kill had come after the file was put in its place, and before its job was queued.
        target = tmp_path / "state/uploads/default/default/main/b.md"
        target.parent.mkdir(parents=True)
        target.write_text("Received whole.")
        (incoming,) = (tmp_path / "state/uploads/.incoming").iterdir()
        submission: dict[str, Any] = {
            "item_type": "file",
            "op": "ingest",
            "payload": {"file_path": str(target)},
        }
        (incoming / "1.json").write_text(json.dumps(submission))
        (incoming / "2.json").write_text('{"item')

        started.start("--no-worker")

        assert ["default/default/main/b.md"] == kept(started)
        jobs = started.ask("GET", "/index/jobs/").body["jobs"]
        assert [str(target)] == [job["folder_path"] for job in jobs]
    finally:
        started.stop()
