"""Calls about collections, pure like ``calls``, and ``ClientCollections`` for programs with threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.calls import ApiCall, _get, _id, _same, _target

if TYPE_CHECKING:
    from penstock.client.schedule_calls import Performer
    from penstock.service.collections import CollectionRecord
    from penstock.service.requests import Receipt


def every(tenant_id: str | None) -> ApiCall[list[CollectionRecord]]:
    """List the collections of a tenant, or of all."""
    from penstock.service.collections import CollectionRecord

    def pick(value: Any) -> list[CollectionRecord]:
        return msgspec.convert(value["collections"], list[CollectionRecord])

    return ApiCall("GET", _target("/collections", {"tenant_id": tenant_id}), dict[str, Any], pick)


def show(collection: str, tenant_id: str | None) -> ApiCall[CollectionRecord]:
    """Show one collection."""
    from penstock.service.collections import CollectionRecord

    return _get(f"/collections/{_id(collection)}", CollectionRecord, {"tenant_id": tenant_id})


def clear(collection: str, tenant_id: str | None) -> ApiCall[Receipt]:
    """Queue the removal of the documents of a collection."""
    from penstock.service.requests import Receipt

    target = _target(f"/collections/{_id(collection)}", {"tenant_id": tenant_id})
    return ApiCall("DELETE", target, Receipt, _same, repeatable=False, patience="index")


class ClientCollections:
    """The collections of a server, with the methods of ``app.collections``."""

    def __init__(self, client: Performer) -> None:
        self._client = client

    def list(self, tenant_id: str | None = None) -> list[CollectionRecord]:
        """List the collections with documents, by tenant and name."""
        return self._client._call(every(tenant_id))

    def show(self, collection: str, *, tenant_id: str | None = None) -> CollectionRecord:
        """Show a collection, with the number of its open jobs."""
        return self._client._call(show(collection, tenant_id))

    def clear(self, collection: str, *, tenant_id: str | None = None) -> Receipt:
        """Queue the removal of all documents of a collection, in every branch."""
        return self._client._call(clear(collection, tenant_id))
