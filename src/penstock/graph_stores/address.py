"""URLs of graph stores: ``neo4j://USER:PASSWORD@HOST:PORT/DATABASE`` and its relatives."""

from __future__ import annotations

import dataclasses
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.errors import InvalidSetting
from penstock.setting_types import GRAPH_STORE_SCHEMES
from penstock.store_url import ENCODE_PASSWORD, StoreUrl

SETTING = "PENSTOCK_GRAPH_STORE"
_REMEDY = f"Set {SETTING} to neo4j://USER:PASSWORD@HOST:7687/DATABASE, or neo4j+s:// for TLS."


@dataclasses.dataclass(frozen=True, slots=True)
class GraphStoreUrl:
    """The address of a graph store. ``text`` may hold a password, ``masked`` does not."""

    text: str = dataclasses.field(repr=False)

    @property
    def masked(self) -> str:
        return StoreUrl(self.text).masked

    @property
    def server(self) -> str:
        """The URL for the driver: scheme, host and port."""
        parts = self._parts()
        return f"{parts.scheme}://{_bracketed(parts.hostname or '')}:{parts.port or 7687}"

    @property
    def account(self) -> tuple[str, str] | None:
        """User and password; None: the server asks for none."""
        parts = self._parts()
        if parts.username is None:
            return None
        return unquote(parts.username), unquote(parts.password or "")

    @property
    def database(self) -> str | None:
        """The database on the server; None: its default one."""
        return unquote(self._parts().path.strip("/")) or None

    def mask_in(self, text: str) -> str:
        """Remove the password from a text such as a driver's error message."""
        return StoreUrl(self.text).mask_in(text)

    def _parts(self) -> SplitResult:
        try:
            parts = urlsplit(self.text)
            _ = parts.port
        except ValueError:
            raise InvalidSetting(
                f"{self.masked[:100]} is not a URL that can be read", remedy=ENCODE_PASSWORD
            ) from None
        if parts.scheme not in GRAPH_STORE_SCHEMES or not parts.hostname:
            raise InvalidSetting(f"{self.masked[:100]} is not the URL of a graph store", remedy=_REMEDY)
        return parts


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
