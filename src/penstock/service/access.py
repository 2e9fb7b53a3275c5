"""Access rules of a server: what a key may do, in which tenants, and which paths requests may name."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from penstock.config import Settings
from penstock.errors import InvalidRequest, NotAllowed, PathNotFound, PathOutside, WebOff
from penstock.pipeline.web import urls
from penstock.queue.payloads import EVERY, validate_name
from penstock.service import paths
from penstock.service.paths import real_path

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


class PathPolicy:
    """Roots below which a server may index. Links are followed before the comparison.

    ``allow_external``: a request may name any path. ``allow_web``: it may name web pages.
    ``state_dir`` is refused in every case: it has the keys and the texts of all tenants. ``of_key`` narrows
    the policy to what a key may name.
    """

    _key: Principal | None = None
    _places: tuple[str, ...] = ()
    _sites: frozenset[str] = frozenset()

    def __init__(
        self, roots: Sequence[str], state_dir: str, *, allow_external: bool, allow_web: bool = False
    ) -> None:
        self.roots = tuple(real_path(root) for root in roots)
        self._allow_external = allow_external
        self._allow_web = allow_web
        self._state_dir = real_path(state_dir)

    @classmethod
    def of(cls, settings: Settings) -> PathPolicy:
        """The policy of the settings; by default the working directory is the root."""
        roots = settings.roots or (str(Path.cwd()),)
        return cls(
            roots,
            str(settings.state_dir),
            allow_external=settings.allow_external,
            allow_web=settings.allow_web,
        )

    def of_key(self, key: Principal) -> PathPolicy:
        """The policy for a sender: of a confined one, paths also lie below the roots of the key."""
        if not key.confined:
            return self
        own = copy.copy(self)
        own._key = key
        own._places = tuple(root for root in key.roots if not urls.is_web_url(root))
        own._sites = frozenset(root for root in key.roots if urls.is_web_url(root))
        return own

    def named(self, path: str) -> str:
        """The absolute path meant by a request: relative ones begin at the first root.

        That is the key's, if it has roots, else the server's.
        """
        paths.refuse_unusable(path)
        if (known := paths.off_disk(path)) is not None:
            return known
        first = self._places[0] if self._key is not None and self._places else self.roots[0]
        return os.path.join(first, path)  # noqa: PTH118 - Path would take away a last slash

    def document(self, path: str, is_known: Callable[[str], bool]) -> str:
        """The absolute path of a document that a request names, indexed or not.

        A confined sender names paths that are allowed, and those that ``is_known`` tells to be of its own
        tenants. Only the text of such a path is compared: links and names of other files stay unknown.
        """
        named = self.named(path)
        if self._key is None or paths.off_disk(path) is not None:
            return named
        plain = os.path.normpath(named)
        if is_known(plain):
            return plain
        self.allowed(path)
        return named

    def allowed(self, path: str, *, allow_external: bool = False) -> str:
        """The real path; raise ``PathOutside`` for other paths, existing or not.

        Raises ``WebOff`` for a web page, unless the setting lets requests name them, and ``NotAllowed`` for
        a key that may name no paths.
        """
        paths.refuse_unusable(path)
        self._refuse_without_roots()
        if urls.is_web_url(path):
            return self._allowed_page(path)
        real = real_path(self.named(path))
        external = allow_external and self._allow_external
        inside = external or any(_below(real, root) for root in self.roots)
        if self._key is not None:
            inside = inside and any(_below(real, root) for root in self._places)
        if not inside or _below(real, self._state_dir):
            raise self._outside(path)
        return real

    def _allowed_page(self, url: str) -> str:
        if not self._allow_web:
            raise WebOff("this server fetches no web pages for requests")
        page = urls.canonical(url)
        if self._key is not None and urls.site_of(page) not in self._sites:
            raise self._outside(url)
        return page

    def require_hosts(self, hosts: Sequence[str]) -> None:
        """Refuse further hosts of a crawl that are not among the roots of the key."""
        if self._key is None:
            return
        own = {urls.host_of(site) for site in self._sites}
        for host in hosts:
            if host.lower() not in own:
                raise self._outside(host)

    def _refuse_without_roots(self) -> None:
        if self._key is not None and not self._key.roots:
            raise NotAllowed(
                f"the key {self._key.name!r} has tenants and no roots: it names no paths of the server",
                remedy="Upload the file with POST /files, or use a key made with `keys create --root DIR`.",
            )

    def _outside(self, path: str) -> PathOutside:
        own = "Name a path below a root of the key; `penstock keys create NAME --root DIR` makes another one."
        return PathOutside(
            f"Path '{path}' is outside project. Use --allow-external to override.",
            remedy=own if self._key is not None else None,
        )

    def allowed_directory(self, path: str, *, allow_external: bool = False) -> str:
        """The real path of a directory that exists; raise ``PathOutside`` or ``PathNotFound``."""
        if paths.off_disk(path) is not None:
            raise PathNotFound(f"{path[:200]!a} is not a directory")
        real = self.allowed(path, allow_external=allow_external)
        if not os.path.isdir(real):  # noqa: PTH112 - it never raises
            raise PathNotFound(f"{path[:200]!a} is not a directory of the server")
        return real


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
