"""Fetching web pages: limits on size, time and redirects, and addresses that are refused."""

from __future__ import annotations

import gzip
import socket
import time
from typing import Any

import pytest

from penstock.errors import (
    AddressRefused,
    BadRedirect,
    DocumentTooLarge,
    PageMissing,
    PageRefused,
    PageUnavailable,
)
from penstock.pipeline.web import fetch
from penstock.pipeline.web.fetch import Fetcher
from penstock.pipeline.web.urls import FetchLimits, Validators
from penstock.queue.retry import classify
from tests.web.conftest import Answer, Site, served


def fetcher(**limits: Any) -> Fetcher:
    return Fetcher(FetchLimits(**({"private": True, "timeout_s": 60.0} | limits)))


def test_a_page_comes_with_type_and_validators(site: Site):
    site.put("/a", "<p>Tür</p>", etag='"1"', Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT")
    found = fetcher().get(f"{site.url}/a")
    assert ("<p>Tür</p>".encode(), "text/html", "utf-8") == (found.body, found.media_type, found.charset)
    assert Validators('"1"', "Mon, 01 Jan 2024 00:00:00 GMT") == found.validators


def test_an_unchanged_page_has_no_body(site: Site):
    site.put("/a", "text", etag='"1"')
    assert fetcher().get(f"{site.url}/a", lambda _: Validators('"1"')).body is None


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"]
)
def test_a_loopback_address_is_refused_in_every_spelling(site: Site, host: str):
    site.put("/a", "secret")
    with pytest.raises(AddressRefused) as refused:
        fetcher(private=False).get(f"http://{host}:{site.port}/a")
    found = classify(refused.value)
    assert ("permanent", "ERR_WEB_ADDRESS") == (found.kind, found.code)
    assert [] == site.asked


@pytest.mark.parametrize("host", ["[::ffff:127.0.0.1]", "[::ffff:7f00:1]"])
def test_an_address_whose_end_looks_like_a_port_is_contacted(site: Site, host: str):
    site.put("/a", "text")

    assert b"text" == fetcher().get(f"http://{host}:{site.port}/a").body


def test_a_port_left_out_is_that_of_the_scheme(monkeypatch: pytest.MonkeyPatch):
    connected: list[Any] = []

    def connect(address: Any, **_: Any) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr("penstock.pipeline.web.fetch.socket.create_connection", connect)
    with pytest.raises(PageUnavailable):
        fetcher().get("http://[2001:db8::abcd]/")

    assert [("2001:db8::abcd", 80)] == connected


@pytest.mark.parametrize("path", ["/a b", "/a\x01b", "/a\r\nX-Other: 1"])
def test_what_cannot_be_a_request_is_refused_for_good(site: Site, path: str):
    with pytest.raises(PageRefused) as refused:
        fetcher().get(f"{site.url}{path}")

    assert "permanent" == classify(refused.value).kind
    assert [] == site.asked


def test_the_address_that_was_checked_is_the_one_connected_to(site: Site, monkeypatch: pytest.MonkeyPatch):
    """A name server that answers differently the second time gains nothing."""
    site.put("/a", "secret")
    answers = iter(["93.184.216.34", "127.0.0.1"])
    looked_up: list[str] = []
    connected: list[Any] = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    def connect(address: Any, **_: Any) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr("penstock.pipeline.web.fetch.socket.getaddrinfo", look_up)
    monkeypatch.setattr("penstock.pipeline.web.fetch.socket.create_connection", connect)
    with pytest.raises(PageUnavailable):
        fetcher(private=False).get(f"http://rebinding.example:{site.port}/a")
    assert (["rebinding.example"], [("93.184.216.34", site.port)]) == (looked_up, connected)


def test_a_redirect_to_a_loopback_address_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch):
    """The first address counts as public here; the second is checked again."""
    with served() as inside:
        inside.put("/secret", "secret")
        site.redirect("/a", f"{inside.url}/secret")
        known = fetch.is_public
        tries = iter([True])
        monkeypatch.setattr(fetch, "is_public", lambda address: next(tries, known(address)))
        with pytest.raises(AddressRefused):
            fetcher(private=False).get(f"{site.url}/a")
        assert [("/a", 302)] == site.asked
        assert [] == inside.asked


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://h/x", "javascript:x", "http://u:p@h/"])
def test_a_redirect_to_anything_but_a_web_page_is_refused(site: Site, target: str):
    site.redirect("/a", target)
    with pytest.raises(BadRedirect):
        fetcher().get(f"{site.url}/a")


def test_redirects_are_followed_up_to_a_limit(site: Site):
    for number in range(8):
        site.redirect(f"/{number}", f"/{number + 1}")
    site.put("/8", "end")
    assert f"{site.url}/8" == fetcher().get(f"{site.url}/3").url
    with pytest.raises(BadRedirect, match="5 times"):
        fetcher().get(f"{site.url}/0")


def test_redirects_in_a_circle_end(site: Site):
    site.redirect("/a", "/b")
    site.redirect("/b", "/a")
    with pytest.raises(BadRedirect):
        fetcher().get(f"{site.url}/a")


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65_536)


def dripping(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)


def dripping_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)


def endless_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: x\r\n" * 1_000)


def test_an_endless_page_ends_at_the_size_limit(site: Site):
    site.pages["/a"] = Answer(send=endless)
    with pytest.raises(DocumentTooLarge, match="1,000,000 bytes"):
        fetcher(max_bytes=1_000_000).get(f"{site.url}/a")


@pytest.mark.parametrize("send", [dripping, dripping_head])
def test_a_page_that_drips_ends_at_the_time_limit(site: Site, send: Any):
    site.pages["/a"] = Answer(send=send)
    with pytest.raises(PageUnavailable, match=r"longer than 0\.3 s"):
        fetcher(timeout_s=0.3).get(f"{site.url}/a")


def test_endless_headers_are_refused(site: Site):
    site.pages["/a"] = Answer(send=endless_head)
    with pytest.raises(PageUnavailable):
        fetcher().get(f"{site.url}/a")


def test_a_packed_page_is_unpacked_up_to_the_limit(site: Site):
    site.put("/a", gzip.compress(b"gate " * 100), Content_Encoding="gzip")
    site.put("/bomb", gzip.compress(b"\0" * (8 << 20)), Content_Encoding="gzip")
    assert b"gate " * 100 == fetcher().get(f"{site.url}/a").body
    with pytest.raises(DocumentTooLarge):
        fetcher(max_bytes=1_000_000).get(f"{site.url}/bomb")


def test_a_packed_page_that_is_cut_off_is_not_taken_for_whole(site: Site):
    whole = gzip.compress(bytes(range(256)) * 100)
    site.put("/cut", whole[:-20], Content_Encoding="gzip")
    site.put("/more", whole + b"\0" * 100, Content_Encoding="gzip")
    site.put("/empty", b"", Content_Encoding="gzip")
    with pytest.raises(PageUnavailable, match="ended too early"):
        fetcher().get(f"{site.url}/cut")
    assert bytes(range(256)) * 100 == fetcher().get(f"{site.url}/more").body
    assert b"" == fetcher().get(f"{site.url}/empty").body


def test_an_announced_size_above_the_limit_is_not_read(site: Site):
    site.put("/a", b"x" * 2_000_000)
    with pytest.raises(DocumentTooLarge):
        fetcher(max_bytes=1_000_000).get(f"{site.url}/a")


def test_packing_that_was_not_asked_for_is_refused(site: Site):
    site.put("/a", b"x", Content_Encoding="br")
    with pytest.raises(PageRefused, match="'br'"):
        fetcher().get(f"{site.url}/a")


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (404, PageMissing, "permanent"),
        (410, PageMissing, "permanent"),
        (403, PageRefused, "permanent"),
        (429, PageUnavailable, "transient"),
        (503, PageUnavailable, "transient"),
    ],
)
def test_statuses_are_errors_of_two_kinds(site: Site, status: int, error: type[Exception], kind: str):
    site.pages["/a?token=secret"] = Answer(status=status, headers={"Retry-After": "7"})
    with pytest.raises(error) as raised:
        fetcher().get(f"{site.url}/a?token=secret")
    found = classify(raised.value)
    assert kind == found.kind
    assert (7.0 if kind == "transient" else None) == (found.retry_after and found.retry_after.total_seconds())
    assert "secret" not in str(raised.value)


def test_a_server_that_is_not_there_may_come_back(site: Site):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(PageUnavailable):
            fetcher().get(f"http://127.0.0.1:{unused.getsockname()[1]}/")
