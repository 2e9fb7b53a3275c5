"""URLs of vector stores: ``default``, a server, a folder of an embedded engine, or PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import InvalidSetting
from penstock.setting_types import VECTOR_STORE_SCHEMES
from penstock.store_url import ENCODE_PASSWORD, StoreUrl

SETTING = "PENSTOCK_VECTOR_STORE"
LOCAL = "+local"
TLS = "+https"
PORTS: Final = {"qdrant": 6333, "chroma": 8000}


class VectorStoreUrl(msgspec.Struct, frozen=True):
    """The address of a vector store. ``text`` may hold a password, ``masked`` does not."""

    text: str

    def __repr__(self) -> str:
        return "VectorStoreUrl()"

    @property
    def scheme(self) -> str:
        """The part before the colon; of the bare word ``pgvector`` the word."""
        return self.text.partition(":")[0]

    @property
    def engine(self) -> str:
        """``qdrant``, ``chroma`` or ``pgvector``."""
        engine = self.scheme.partition("+")[0]
        if self.scheme not in VECTOR_STORE_SCHEMES:
            raise InvalidSetting(f"{self.masked[:100]} is not the URL of a vector store", remedy=_REMEDY)
        return engine

    @property
    def is_local(self) -> bool:
        """True for a folder that an embedded engine works in."""
        return self.scheme.endswith(LOCAL)

    @property
    def masked(self) -> str:
        """The URL with ``***`` in place of a password or key."""
        return f"{self.scheme}:{self.folder}" if self.is_local else StoreUrl(self.text).masked

    @property
    def folder(self) -> Path:
        """The absolute folder of an embedded engine."""
        name = self.text.partition(":")[2]
        if not name or name.startswith("//"):
            raise InvalidSetting(
                f"{self.text[:100]} names no folder", remedy=f"Write {self.scheme}:/srv/vectors."
            )
        return Path(name).expanduser().absolute()

    @property
    def key(self) -> str | None:
        """The password of the URL, sent as key or token."""
        password = urlsplit(self.text).password
        return unquote(password) if password else None

    def server(self) -> tuple[str, int, bool]:
        """Host and port of a server, and whether it speaks TLS."""
        parts = urlsplit(self.text)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if not parts.hostname or port == 0 or parts.path.strip("/") or parts.query or parts.fragment:
            raise InvalidSetting(
                f"{self.masked[:100]}: expected a host, and a port at most",
                remedy=f"Write {self.scheme}://HOST:PORT, with a key ://:KEY@HOST:PORT. {ENCODE_PASSWORD}",
            )
        return parts.hostname, port or PORTS[self.engine], self.scheme.endswith(TLS)

    def mask_in(self, text: str) -> str:
        """Remove the password from a text such as an error message of a client."""
        return text if self.is_local else StoreUrl(self.text).mask_in(text)


_REMEDY = (
    f"Set {SETTING} to default, qdrant://HOST:PORT, qdrant+local:FOLDER, chroma://HOST:PORT, "
    "chroma+local:FOLDER, pgvector, or pgvector://USER:PASSWORD@HOST/DATABASE."
)
