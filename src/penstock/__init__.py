"""A durable ingestion queue and document pipeline.

``Penstock`` and the clients are loaded at their first use, so that ``import penstock`` costs nothing.
"""

# Nothing is imported here, not even __future__: `python -m penstock` runs this with the working directory
# first in the import path.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from penstock.app import Penstock as Penstock
    from penstock.client.async_client import AsyncClient as AsyncClient
    from penstock.client.sync_client import Client as Client
    from penstock.errors import PenstockError as PenstockError
    from penstock.service.requests import Receipt as Receipt

__all__ = ["Penstock", "Client", "AsyncClient", "Receipt", "PenstockError"]

_HOMES = {
    "Penstock": "penstock.app",
    "Client": "penstock.client.sync_client",
    "AsyncClient": "penstock.client.async_client",
    "Receipt": "penstock.service.requests",
    "PenstockError": "penstock.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
