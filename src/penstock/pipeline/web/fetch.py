"""Fetcher of web pages: one request at a time, with limits on size, time, redirects and addresses.

Only public addresses are contacted, unless a setting allows others. Nothing is retried here: the job is.
Proxies and cookies are not used.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from penstock import clock
from penstock.errors import (
    AddressRefused,
    BadRedirect,
    DocumentTooLarge,
    PageMissing,
    PageRefused,
    PageUnavailable,
    PenstockError,
)
from penstock.pipeline.endpoint_client import wait_asked_for
from penstock.pipeline.web import urls
from penstock.pipeline.web.urls import FetchedPage, FetchLimits, Validators

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_TRANSLATED = (ipaddress.ip_network("::ffff:0:0:0/96"), ipaddress.ip_network("64:ff9b:1::/48"))
"""Other ranges for addresses that a router translates to IPv4; where to, only the router knows."""


def is_public(address: Address) -> bool:
    """Check whether an address is one of the public internet. Embedded IPv4 addresses count, too."""
    if isinstance(address, ipaddress.IPv6Address):
        if any(address in network for network in _TRANSLATED):
            return False
        embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        inner = [each for each in embedded if each is not None]
        if inner:
            return all(is_public(each) for each in inner)
        if address.is_site_local:
            return False
    odd = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback
    return address.is_global and not odd and not address.is_link_local


def _resolve(host: str, port: int, *, private: bool, timeout_s: float) -> list[str]:
    """Allowed addresses of a host, in the resolver's order.

    ``private``: every address may be. The caller connects to one of these and asks no resolver again: a
    name server could give another answer the second time. Raises ``AddressRefused`` if all are refused.
    """
    found = _look_up(host, port, timeout_s)
    allowed = [each for each in found if is_public(_parsed(each)) or (private and _is_complete(each))]
    if not allowed and private:
        raise AddressRefused(
            f"{host} has the address {found[0]}, which only an interface of each machine gives a meaning",
            remedy="Use a name, or another address of that server.",
        )
    if not allowed:
        raise AddressRefused(f"{host} has the address {found[0]}, which is not a public one")
    return allowed


def _is_complete(text: str) -> bool:
    """Tell whether a connection can be made: a link-local address counts on one interface only."""
    address = _parsed(text)
    return "%" in text or not (address.version == 6 and address.is_link_local)


def _parsed(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _look_up(host: str, port: int, timeout_s: float) -> list[str]:
    """Ask the resolver in a thread: the call has no timeout."""
    answer: list[str] = []
    failure: list[Exception] = []

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answer.extend(dict.fromkeys(str(info[4][0]) for info in infos))
        except (OSError, UnicodeError) as error:
            failure.append(error)

    thread = threading.Thread(target=ask, daemon=True, name="resolver")
    thread.start()
    thread.join(timeout_s)
    if answer:
        return answer
    cause = getattr(failure[0], "strerror", None) or str(failure[0]) if failure else "no answer in time"
    raise PageUnavailable(f"the name {host} cannot be resolved: {cause}")


T = TypeVar("T")
USER_AGENT = "penstock"
_PIECE = 1 << 16
_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_GONE = frozenset([404, 410])
_TRANSIENT = frozenset([408, 425, 429])
_UNCHANGED = 304
MOST_ADDRESSES = 4
"""Addresses of a host that are tried, one after the other."""


class Fetcher:
    """Fetches pages within limits."""

    def __init__(self, limits: FetchLimits) -> None:
        self.limits = limits

    def get(
        self,
        url: str,
        validators: Callable[[str], Validators] = lambda _: Validators(),
        *,
        max_bytes: int | None = None,
        before: Callable[[str], None] = lambda _: None,
    ) -> FetchedPage:
        """Fetch a page. ``before`` is called with each address first, and may refuse or delay it.

        ``validators``: those of the known version at an address.
        Raises PageMissing, PageRefused, BadRedirect, AddressRefused, DocumentTooLarge or PageUnavailable.
        """
        deadline = clock.elapsed_s() + self.limits.timeout_s
        seen: list[str] = []
        while True:
            seen.append(url)
            asked = clock.elapsed_s()
            before(url)
            # Waiting for the turn of the host is no fault of the page.
            deadline += clock.elapsed_s() - asked
            exchange = _Exchange(self.limits, url, deadline, min(max_bytes or 1 << 62, self.limits.max_bytes))
            found = exchange.run(validators(url))
            if isinstance(found, FetchedPage):
                return found
            target = urls.linked(url, found)
            if target is None:
                raise BadRedirect(f"{urls.shown(seen[0])} redirects to {urls.shown(found)!r}: not a web page")
            if target in seen or len(seen) > self.limits.max_redirects:
                raise BadRedirect(f"{urls.shown(seen[0])} redirects more than {len(seen) - 1} times")
            url = target


class PostAnswer(msgspec.Struct, frozen=True):
    """The answer to sent data."""

    status: int
    retry_after: timedelta | None = None


def post(url: str, body: bytes, headers: Mapping[str, str], limits: FetchLimits) -> PostAnswer:
    """Send data to a web server; redirects are not followed, and the content of the answer is not read.

    Raises AddressRefused or PageUnavailable.
    """
    exchange = _Exchange(limits, url, clock.elapsed_s() + limits.timeout_s, 0)
    own = {"Host": urls.host_of(url), "User-Agent": USER_AGENT, "Connection": "close"}

    def read(response: http.client.HTTPResponse) -> PostAnswer:
        return PostAnswer(response.status, wait_asked_for(response.getheader("Retry-After")))

    return exchange.send("POST", {**own, **headers}, read, body)


def _port_of(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


class _Exchange:
    """One request with the response."""

    def __init__(self, limits: FetchLimits, url: str, deadline: float, max_bytes: int) -> None:
        self._limits = limits
        self._url = url
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._shown = urls.shown(url)
        self._socket: socket.socket | None = None

    def run(self, validators: Validators) -> FetchedPage | str:
        """The page, or the target of a redirect."""
        return self.send("GET", self._headers(validators), lambda found: self._answer(found, validators))

    def send(
        self,
        method: str,
        headers: Mapping[str, str],
        read: Callable[[http.client.HTTPResponse], T],
        body: bytes | None = None,
    ) -> T:
        """Send a request and read the response, before the deadline."""
        parts = urlsplit(self._url)
        over = threading.Timer(self._left(), self._cut_off)
        over.daemon = True
        over.start()
        # With a port: the end of an IPv6 address would be taken for one.
        connection = http.client.HTTPConnection(str(parts.hostname), _port_of(parts))
        try:
            connection.sock = self._connect(parts)
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.request(method, target, body, headers=dict(headers))
            with connection.getresponse() as response:
                return read(response)
        except http.client.InvalidURL as error:
            # No time makes a request of it.
            raise PageRefused(f"{self._shown} cannot be asked for ({error})") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            # An error of Penstock may be a ValueError as well.
            if isinstance(error, PenstockError):
                raise
            if clock.elapsed_s() >= self._deadline or isinstance(error, TimeoutError):
                raise self._too_slow() from None
            raise PageUnavailable(f"{self._shown}: the connection broke ({_cause(error)})") from None
        finally:
            over.cancel()
            connection.close()

    def _cut_off(self) -> None:
        """End the connection at the deadline: a server sending a byte now and then never causes a timeout."""
        with suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def _left(self) -> float:
        left = self._deadline - clock.elapsed_s()
        if left <= 0:
            raise self._too_slow()
        return left

    def _too_slow(self) -> PageUnavailable:
        return PageUnavailable(
            f"{self._shown} took longer than {self._limits.timeout_s:g} s",
            remedy="Raise PENSTOCK_WEB_TIMEOUT_S if the server is that slow.",
        )

    def _connect(self, parts: SplitResult) -> socket.socket:
        """Connect to one of the checked addresses, under the name of the URL."""
        host, secure = str(parts.hostname), parts.scheme == "https"
        port = _port_of(parts)
        found = _resolve(host, port, private=self._limits.private, timeout_s=self._left())
        failure: Exception | None = None
        for address in found[:MOST_ADDRESSES]:
            try:
                self._socket = socket.create_connection((address, port), timeout=self._left())
                return self._secured(self._socket, host) if secure else self._socket
            except ssl.SSLError as error:
                raise self._tls_failure(error) from None
            except OSError as error:
                failure = error
        raise PageUnavailable(f"{self._shown}: no connection ({_cause(failure)})") from None

    def _secured(self, plain: socket.socket, host: str) -> socket.socket:
        context = ssl.create_default_context()
        try:
            secured = context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
        except OSError:
            plain.close()
            raise
        self._socket = secured
        try:
            secured.do_handshake()
        except OSError:
            secured.close()
            raise
        return secured

    def _tls_failure(self, error: OSError) -> Exception:
        if isinstance(error, ssl.SSLCertVerificationError):
            return PageRefused(
                f"{self._shown}: the certificate is not accepted ({error.verify_message})",
                remedy="Check the certificate; an authority of your own is trusted by SSL_CERT_FILE.",
            )
        return PageUnavailable(f"{self._shown}: no TLS connection ({_cause(error)})")

    def _headers(self, validators: Validators) -> dict[str, str]:
        headers = {
            "Host": urls.host_of(self._url),
            "User-Agent": USER_AGENT,
            "Accept": "text/html,application/xhtml+xml,text/markdown,text/plain,application/pdf,*/*;q=0.5",
            "Accept-Encoding": "gzip",
            "Connection": "close",
        }
        if validators.etag:
            headers["If-None-Match"] = validators.etag
        if validators.last_modified:
            headers["If-Modified-Since"] = validators.last_modified
        return headers

    def _answer(self, response: http.client.HTTPResponse, validators: Validators) -> FetchedPage | str:
        # Headers that end with the connection look complete.
        self._left()
        status = response.status
        if status == _UNCHANGED and validators != Validators():
            return FetchedPage(url=self._url, body=None, validators=validators)
        location = response.getheader("Location")
        if status in _REDIRECTS and location:
            return location.encode("latin-1", "replace").decode("utf-8", "replace")
        if status != http.HTTPStatus.OK:
            raise self._refusal(status, wait_asked_for(response.getheader("Retry-After")))
        return FetchedPage(
            url=self._url,
            body=self._body(response),
            media_type=response.headers.get_content_type().lower(),
            charset=str(response.headers.get_content_charset() or ""),
            validators=Validators(_token(response, "ETag"), _token(response, "Last-Modified")),
            robots=_token(response, "X-Robots-Tag").lower(),
            suggested_name=response.headers.get_filename() or "",
        )

    def _refusal(self, status: int, wait: timedelta | None) -> Exception:
        reason = f"{status} {http.client.responses.get(status, '')}".strip()
        message = f"{self._shown} answered {reason}"
        if status in _GONE:
            return PageMissing(message)
        if status >= 500 or status in _TRANSIENT:
            return PageUnavailable(message, retry_after=wait)
        return PageRefused(message)

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        announced = response.length
        if announced is not None and announced > self._max_bytes:
            raise self._too_large()
        unpacker = _Unpacker(response.getheader("Content-Encoding") or "", self._shown)
        pieces: list[bytes] = []
        sent = size = 0
        while piece := response.read1(_PIECE):
            self._left()
            sent += len(piece)
            unpacked = unpacker.unpack(piece, self._max_bytes - size + 1)
            size += len(unpacked)
            if sent > self._max_bytes or size > self._max_bytes:
                raise self._too_large()
            pieces.append(unpacked)
        self._left()
        if response.length or not unpacker.complete:
            raise http.client.IncompleteRead(b"", response.length or None)
        return b"".join(pieces)

    def _too_large(self) -> DocumentTooLarge:
        return DocumentTooLarge(f"{self._shown} has more than {self._max_bytes:,} bytes")


class _Unpacker:
    """Unpacks a body piece by piece."""

    def __init__(self, encoding: str, shown: str) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise PageRefused(f"{shown} is packed as {encoding[:40]!r}, which was not asked for")
        window = zlib.MAX_WBITS if encoding == "deflate" else zlib.MAX_WBITS | 16
        self._stream = zlib.decompressobj(window) if encoding not in ("", "identity") else None
        self._begun = False
        self._shown = shown

    @property
    def complete(self) -> bool:
        """True at the end of the compressed content; without the end, the content is truncated."""
        return self._stream is None or self._stream.eof or not self._begun

    def unpack(self, piece: bytes, most: int) -> bytes:
        """Unpack the next piece, to at most so many bytes. Data after the end is ignored."""
        if self._stream is None:
            return piece
        self._begun = True
        try:
            return b"" if self._stream.eof else self._stream.decompress(piece, most)
        except zlib.error as error:
            raise PageRefused(f"{self._shown}: the packed content is damaged ({error})") from None


def _token(response: http.client.HTTPResponse, name: str) -> str:
    """A header for later requests: one short line of plain characters, else empty."""
    text = (response.getheader(name) or "").strip()
    return text if len(text) <= 500 and text.isascii() and text.isprintable() else ""


def _cause(error: Exception | None) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the answer ended too early"
    if isinstance(error, (http.client.BadStatusLine, http.client.UnknownProtocol)):
        return "the answer is not HTTP"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
