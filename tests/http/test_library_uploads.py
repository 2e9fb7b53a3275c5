"""Archives of libraries that are uploaded: indexed, replaced and removed with their version."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pytest

from tests.http.live_server import Answer, LiveServer

SERVE = ("--processes", "1")
SETTINGS = {"max_file_mb": "1"}
RAW = {"Content-Type": "application/octet-stream"}


class Keys(NamedTuple):
    acme: str
    other: str
    reader: str


@pytest.fixture(scope="module")
def keys(server: LiveServer) -> Keys:
    return Keys(
        server.make_key("acme", "write", "acme"),
        server.make_key("other", "write", "other"),
        server.make_key("reader", "read", "acme"),
    )


def sdist(files: dict[str, str], top: str = "mill-1.0/") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(top + name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


def wheel(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def send(server: LiveServer, key: str, data: bytes, **fields: str) -> Answer:
    """Send an archive as the body itself."""
    return server.ask("POST", f"/library?{urlencode(fields)}", data, key=key, headers=RAW)


def done(server: LiveServer, key: str, answer: Answer) -> None:
    assert 202 == answer.status, answer.body
    job = server.ended(answer.body["job_id"], key=key)
    assert "done" == job["status"], job["error"]


def kept(server: LiveServer) -> set[str]:
    """Suffixes of the archives that the server keeps."""
    files = (server.folder / "state" / "web").glob("??/*")
    return {"".join(file.suffixes) for file in files if file.suffix != ".json"}


def found(server: LiveServer, key: str, query: str, library: str) -> list[str]:
    body = {"query": query, "library": library}
    return [hit["path"] for hit in server.ask("POST", "/search", body, key=key).body["hits"]]


def test_versions_are_uploaded_searched_and_removed(server: LiveServer, keys: Keys):
    first = sdist({"docs/gate.md": "# Gate\n\nThe gate is opened by hand.", "PKG-INFO": "Name: mill"})
    form = b"--cut\r\nContent-Disposition: form-data; name=requirement\r\n\r\nMill\r\n--cut\r\n"
    form += b'Content-Disposition: form-data; name=file; filename="mill-1.0.tar.gz"\r\n\r\n'
    form += first + b"\r\n--cut--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=cut"}
    answer = server.ask("POST", "/library", form, key=keys.acme, headers=kind)
    done(server, keys.acme, answer)
    assert ("library://mill/1.0", len(first)) == (answer.body["path"], answer.body["size"])
    second = wheel({"mill/gate.md": "# Gate\n\nThe gate is opened by a motor."})
    done(
        server,
        keys.acme,
        send(server, keys.acme, second, requirement="mill", name="mill-2.0-py3-none-any.whl"),
    )

    listed = server.ask("GET", "/library", key=keys.acme).body["libraries"]
    assert [("1.0", "mill-1.0.tar.gz"), ("2.0", "mill-2.0-py3-none-any.whl")] == [
        (one["version"], one["source"]) for one in listed
    ]
    assert ["library://mill/1.0/docs/gate.md"] == found(server, keys.acme, "gate", "mill==1.0")
    assert ["library://mill/2.0/gate.md"] == found(server, keys.acme, "gate", "mill==2.0")
    assert [] == server.ask("GET", "/library", key=keys.other).body["libraries"]
    assert {".tar.gz", ".whl"} == kept(server)

    done(server, keys.acme, server.ask("DELETE", "/library/mill/1.0", key=keys.acme))
    assert [] == found(server, keys.acme, "gate", "mill==1.0")
    assert {".whl"} == kept(server)
    third = sdist({"gate.md": "# Gate\n\nThe gate is closed."}, "mill-3.0/")
    answer = send(server, keys.acme, third, requirement="mill", name="mill-3.0.tar.gz", replace="true")
    done(server, keys.acme, answer)
    assert ["3.0"] == [
        one["version"] for one in server.ask("GET", "/library", key=keys.acme).body["libraries"]
    ]
    assert {".tar.gz"} == kept(server)
    done(server, keys.acme, server.ask("DELETE", "/library/mill/3.0", key=keys.acme))
    assert set() == kept(server)


REFUSED: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "no requirement": (b"x", {"requirement": ""}, 422, "ERR_INVALID_REQUEST"),
    "no name": (b"x", {"name": ""}, 422, "ERR_INVALID_REQUEST"),
    "no archive": (b"x", {"name": "mill.md"}, 422, "ERR_INVALID_REQUEST"),
    "no version": (b"x", {"requirement": "mill", "name": "mill.zip"}, 422, "ERR_LIBRARY_NOT_FOUND"),
    "a name with a path": (b"x", {"name": "../mill-1.0.tar.gz"}, 422, "ERR_INVALID_NAME"),
    "a requirement with a path": (b"x", {"requirement": "../mill==1"}, 422, "ERR_INVALID_PAYLOAD"),
    "a version with a path": (b"x", {"requirement": "mill==../1"}, 422, "ERR_INVALID_PAYLOAD"),
    "too much": (b"x" * ((1 << 20) + 1), {}, 413, "ERR_REQUEST_TOO_LARGE"),
    "a source as well": (b"x", {"source": "/etc"}, 422, "ERR_INVALID_REQUEST"),
    "another tenant": (b"x", {"tenant_id": "other"}, 403, "ERR_NOT_ALLOWED"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_upload_is_refused_and_leaves_nothing(server: LiveServer, keys: Keys, name: str):
    data, fields, status, code = REFUSED[name]
    before = kept(server)
    given = {"requirement": "mill==1.0", "name": "mill-1.0.tar.gz"} | fields
    answer = send(server, keys.acme, data, **{key: value for key, value in given.items() if value})
    assert (status, code) == (answer.status, answer.code), answer.body
    assert before == kept(server)
    incoming = server.folder / "state" / "web" / ".incoming"
    assert [] == [file for file in incoming.glob("*/*") if file.is_file()]


def test_a_reader_uploads_nothing_and_a_large_body_of_json_is_still_refused(server: LiveServer, keys: Keys):
    assert 403 == send(server, keys.reader, b"x", requirement="mill==1", name="mill-1.zip").status
    large = {"requirement": "mill==1", "source": "x" * (11 << 20)}
    assert 413 == server.ask("POST", "/library", large, key=keys.acme).status


def hostile_tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, kind, target in (
            ("../../escaped.md", tarfile.REGTYPE, ""),
            ("/absolute.md", tarfile.REGTYPE, ""),
            ("link.md", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard.md", tarfile.LNKTYPE, "/etc/passwd"),
            ("device.md", tarfile.CHRTYPE, ""),
            ("good.md", tarfile.REGTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            text = f"# Weir\n\nThe weir of {name.strip('./')} is safe.".encode()
            info.size = len(text) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(text) if info.size else None)
    return made.getvalue()


def test_members_that_lead_elsewhere_are_not_followed(server: LiveServer, keys: Keys):
    answer = send(server, keys.acme, hostile_tar(), requirement="weir==1.0", name="weir-1.0.tar.gz")
    server.ended(answer.body["job_id"], key=keys.acme)
    paths = found(server, keys.acme, "weir safe", "weir==1.0")
    assert "library://weir/1.0/good.md" in paths
    assert all(path.startswith("library://weir/1.0/") and ".." not in path for path in paths)
    body = {"query": "root bin daemon nologin", "library": "weir==1.0"}
    answer = server.ask("POST", "/search", body, key=keys.acme)
    assert not any("/bin/" in str(hit) for hit in answer.body["hits"])
    assert not Path("/absolute.md").exists()
    done(server, keys.acme, server.ask("DELETE", "/library/weir/1.0", key=keys.acme))


def test_a_bomb_is_not_unpacked_and_not_kept(server: LiveServer, keys: Keys):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mill/bomb.txt", b"\0" * (50 << 20))
    answer = send(server, keys.acme, made.getvalue(), requirement="sluice==1.0", name="sluice-1.0.zip")
    job = server.ended(answer.body["job_id"], key=keys.acme)
    assert ("failed", "ERR_NOTHING_TO_INDEX") == (job["status"], job["error_code"])
    assert ".zip" not in kept(server)
