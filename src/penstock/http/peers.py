"""The machine that a request comes from, also behind a reverse proxy.

Everything that a proxy passes on comes from its one address. A part for each machine would then be one part
for all people behind the proxy, so the address of a proxy has none: the proxy says who the sender is, in
``X-Forwarded-For``. Only the last entry is the proxy's own, so that a sender cannot choose another address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

FORWARDED = b"x-forwarded-for"
SITE = 64
"""Bits of an IPv6 address that belong to a site: one machine may use all addresses below them."""


class Peers:
    """Names of machines. ``proxies``: addresses and networks of proxies, besides this machine itself."""

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        self._proxies: tuple[Network, ...] = tuple(ipaddress.ip_network(one, strict=False) for one in proxies)

    def of_connection(self, client: Sequence[Any] | None) -> str | None:
        """The machine at the other end of a connection; None for this machine, and for a proxy."""
        address = _address(str(client[0])) if client else None
        return None if address is None or self._is_proxy(address) else _named(address)

    def of_request(self, client: Sequence[Any] | None, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The machine that sent a request; None for this machine, and if a proxy names no other one."""
        if (direct := self.of_connection(client)) is not None:
            return direct
        given = b",".join(value for name, value in headers if name == FORWARDED).decode("latin-1")
        for part in reversed(given.split(",")):
            address = _address(part.strip())
            if address is None:
                return None
            if not self._is_proxy(address):
                return _named(address)
        return None

    def _is_proxy(self, address: Address) -> bool:
        return address.is_loopback or any(address in network for network in self._proxies)


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _named(address: Address) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, SITE), strict=False))
    return str(address)
