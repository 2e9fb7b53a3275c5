"""Network addresses of web servers: only public ones are contacted, unless a setting allows others."""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import TypeAlias

from penstock.errors import AddressRefused, PageUnavailable

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


def resolve(host: str, port: int, *, private: bool, timeout_s: float) -> list[str]:
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
