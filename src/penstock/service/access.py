"""Access rules of a server: what a key may do, and in which tenants."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from penstock.errors import InvalidRequest, NotAllowed
from penstock.items import EVERY, validate_name

KeyScope: TypeAlias = Literal["read", "write", "admin"]
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
"""From the least to the most; each includes those before it."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request: name and scope of the key. No tenants: all of them.

    ``roots``: folders, and hosts of web pages, below which the sender may name paths of the server. None: all
    that the server allows; of a sender bound to tenants, nothing.
    ``auth``: sent with a key, with the cookie of a session, or without either to a server without keys.
    """

    name: str
    scope: KeyScope
    tenants: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    auth: Literal["none", "key", "session"] = "none"

    @property
    def scopes(self) -> tuple[KeyScope, ...]:
        """The scope and the scopes included."""
        return SCOPES[: SCOPES.index(self.scope) + 1]

    @property
    def bound(self) -> bool:
        """True for a key bound to tenants."""
        return bool(self.tenants)

    @property
    def confined(self) -> bool:
        """True for a sender who may not name all paths that the server allows."""
        return bool(self.tenants or self.roots)

    def require(self, scope: KeyScope) -> None:
        """Refuse a request that needs another scope."""
        if SCOPES.index(self.scope) < SCOPES.index(scope):
            raise NotAllowed(f"this needs the scope {scope}, and the key {self.name!r} has {self.scope}")

    def require_unbound(self) -> None:
        """Refuse a request about all tenants by a key that is bound to some."""
        if self.tenants:
            raise NotAllowed(
                f"this is about all tenants, and the key {self.name!r} is for {self.tenants[0]!r}"
            )

    def owns(self, tenant_id: str) -> bool:
        """Tell whether objects of the tenant exist for this sender."""
        return not self.tenants or tenant_id in self.tenants

    def tenant(self, given: str | None, default: str) -> str:
        """The tenant of a request: as named, else the key's only one, else the default."""
        if given is not None:
            return self._own(given)
        if len(self.tenants) == 1:
            return self.tenants[0]
        if not self.owns(default):
            names = ", ".join(self.tenants)
            raise InvalidRequest(f"tenant_id: name one of the key's tenants: {names}")
        return default

    def tenants_for(self, given: str | None) -> tuple[str | None, ...]:
        """Tenants to list, as filters: (None,) is no filter."""
        if given is not None:
            return (self._own(given),)
        return self.tenants or (None,)

    def require_pause(self, tenant_id: str | None, collection: str | None) -> tuple[str | None, str | None]:
        """The scope of a pause: admin keys pause anything of theirs, write keys one of their tenants."""
        if not self.bound and self.scope == "admin":
            return tenant_id, collection
        self.require("write")
        if tenant_id == EVERY:
            raise NotAllowed("only an admin key without tenants pauses all tenants")
        if not self.bound:
            raise NotAllowed(f"this needs the scope admin, and the key {self.name!r} has {self.scope}")
        return self.tenant(tenant_id, ""), collection

    def _own(self, tenant_id: str) -> str:
        validate_name("tenant_id", tenant_id)
        if not self.owns(tenant_id):
            raise NotAllowed(f"the key {self.name!r} is not for tenant {tenant_id[:80]!r}")
        return tenant_id


LOCAL = Principal(name="local", scope="admin")
"""The sender of a request to a server without keys, which is reached from its own machine only."""
