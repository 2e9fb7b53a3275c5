"""Projects: work trees of git repositories, with a tenant each and documents for each branch.

One rule, ``Places``, decides tenant and branch for every door; decisions 0056 and 0075 give its reasons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypedDict

import msgspec

from penstock.catalog.parts import ProjectRoot
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place, TenantCount
from penstock.config import DEFAULT_TENANT, Settings
from penstock.errors import InvalidRequest, NotAllowed, UnknownProject
from penstock.pipeline.walk import repository
from penstock.queue.payloads import NOTES
from penstock.service import paths
from penstock.service.access import LOCAL, Principal
from penstock.service.hits import Coverage, SearchedPart
from penstock.service.jobs import Jobs
from penstock.service.paths import real_path
from penstock.service.requests import DocumentFilters, ProjectChoice, Receipt, submission_at

_NO_GIT_BRANCH = "main"
"""The branch of a project that is no git repository."""
_FEWEST_DIGITS = 4
"""Shortest start of a tenant's id that names its project."""


class WorkTree(msgspec.Struct, frozen=True):
    """A work tree as it is on the disk now. ``remote`` may hold a password: it is never shown or stored."""

    root: str
    remote: str | None
    branch: str


class PlaceNames(TypedDict, total=False):
    """Tenant and branch, as far as they are decided."""

    tenant_id: str
    branch: str


class Placement(msgspec.Struct, frozen=True):
    """Tenant and branch for a request; None: the tenant of the settings, or any branch."""

    tenant_id: str | None = None
    branch: str | None = None
    project: ProjectRoot | None = None
    follows: bool = False
    """The branch is the one that is checked out: jobs leave it alone while another one is."""

    @property
    def name(self) -> str | None:
        """Project and branch, for people."""
        return None if self.project is None else f"{self.project.name} (branch {self.branch})"

    @property
    def names(self) -> PlaceNames:
        """Tenant and branch of a submission, as far as they are decided."""
        decided: PlaceNames = {}
        if self.tenant_id is not None:
            decided["tenant_id"] = self.tenant_id
        if self.branch is not None:
            decided["branch"] = self.branch
        return decided

    @property
    def metadata(self) -> dict[str, str]:
        """The part of a job's metadata that binds it to the checked-out branch."""
        if self.project is None or not self.follows:
            return {}
        return {repository.WORK_TREE: self.project.root}


class WantedPlace(msgspec.Struct, frozen=True):
    """The place stated by a request. ``project``: wanted or not, or (to read) a project by its name or
    folder; None: by the rule."""

    tenant_id: str | None = None
    branch: str | None = None
    project: ProjectChoice = None


def placed(
    wanted: WantedPlace,
    tree: WorkTree | None,
    recorded: ProjectRoot | None,
    *,
    reads: bool = False,
    own_tenant: bool = False,
) -> Placement:
    """Decide tenant and branch. ``tree``: the work tree around the path. ``recorded``: its project, if known.

    A named tenant wins, then a tenant of the settings (``own_tenant``), unless a project is asked for. A
    request that only ``reads`` is about a project that was indexed before.
    """
    if wanted.tenant_id is not None or tree is None or wanted.project is False:
        followed = tree.branch if tree is not None and wanted.project else None
        return Placement(wanted.tenant_id, wanted.branch or followed)
    if not wanted.project and (own_tenant or (reads and recorded is None)):
        return Placement(None, wanted.branch)
    project = recorded or project_of(tree)
    branch = wanted.branch or tree.branch
    return Placement(project.tenant_id, branch, project, follows=branch == tree.branch)


def project_of(tree: WorkTree) -> ProjectRoot:
    """The project of a work tree that was never indexed."""
    remote = "" if tree.remote is None else repository.normalised_remote(tree.remote)
    return ProjectRoot(
        root=tree.root,
        tenant_id=repository.tenant_from(tree.remote, tree.root),
        name=repository.project_name(tree.remote, tree.root),
        remote=remote,
    )


def _work_tree(root: str) -> WorkTree:
    """The work tree with this top folder; a folder without git has one branch."""
    found = repository.find_repository(root)
    if found is None or found.root != root:
        return WorkTree(root, None, _NO_GIT_BRANCH)
    return WorkTree(root, repository.remote_of(found), repository.branch_of(found))


def followed(catalog: Catalog, place: Place, path: str) -> dict[str, str]:
    """The metadata for binding a job of a path to the branch; empty outside of projects."""
    recorded = _deepest(catalog, path)
    if recorded is None or recorded.tenant_id != place.tenant_id:
        return {}
    return {repository.WORK_TREE: recorded.root}


def placed_to_read(
    path: str,
    wanted: WantedPlace,
    recorded_at: Callable[[list[str]], Iterable[ProjectRoot]],
    *,
    own_tenant: bool,
) -> Placement:
    """Place a reading request. ``recorded_at``: the recorded projects among some folders."""
    off_disk = paths.off_disk(path) is not None
    if off_disk or wanted.tenant_id is not None or wanted.project is False:
        return placed(wanted, None, None)
    real = real_path(path)
    recorded = max(recorded_at(_above(real)), key=lambda one: len(one.root), default=None)
    tree = None if recorded is None else _work_tree(recorded.root)
    return placed(wanted, tree, recorded, reads=True, own_tenant=own_tenant)


def _deepest(catalog: Catalog, path: str) -> ProjectRoot | None:
    """The nearest recorded project above a path."""
    return max(catalog.projects.at(_above(path)), key=lambda one: len(one.root), default=None)


def _above(path: str) -> list[str]:
    """The path and all folders above it, in the form of the catalog."""
    return [paths.readable(str(each)) for each in (path, *Path(path).parents)]


class SearchScope(msgspec.Struct, frozen=True):
    """The parts of the index that a search covers: filters of each, and what to call them."""

    filters: tuple[DocumentFilters, ...]
    covered: Coverage

    def without_notes(self) -> SearchScope:
        """The scope without the notes of a person, for a search that is narrowed to paths."""
        pairs = zip(self.filters, self.covered.parts, strict=True)
        kept = [(filters, part) for filters, part in pairs if not part.notes_only]
        if len(kept) == len(self.filters):
            return self
        parts = tuple(part for _, part in kept)
        return SearchScope(
            tuple(filters for filters, _ in kept), Coverage(parts=parts, everything=self.covered.everything)
        )


class Places:
    """The one rule for the place of documents, as the sender of a request sees it.

    A tenant that the request names wins; else the project of the path, unless ``project`` is false; else the
    tenant of the key or of the settings. A key bound to tenants never leads to another one.
    """

    def __init__(self, catalog: Catalog, settings: Settings, principal: Principal = LOCAL) -> None:
        self._catalog = catalog
        self._settings = settings
        self._principal = principal
        self._own_tenant = settings.tenant_id != DEFAULT_TENANT

    def roots(self) -> list[ProjectRoot]:
        """All folders that were indexed as projects, by name and folder."""
        return self._catalog.projects.all()

    # Places of paths.

    def for_index(
        self, path: str, wanted: WantedPlace, *, container: bool = False, remote: str | None = None
    ) -> Placement:
        """Place a request to index a path. Web pages and libraries belong to no project.

        ``container``: the path is itself a project, also without git; ``remote``: the one that it states.
        """
        if isinstance(wanted.project, str):
            raise InvalidRequest("project: true or false, to index a path", remedy="Name a tenant instead.")
        if paths.off_disk(path) is not None:
            return self._bounded(placed(wanted, None, None), wanted)
        real = real_path(path)
        known = _deepest(self._catalog, real)
        found = repository.find_repository(real)
        root = found.root if found is not None else None
        if known is not None and (root is None or len(known.root) > len(root)):
            root = known.root
        if root is None and (wanted.project or container):
            root = real if os.path.isdir(real) else str(Path(real).parent)  # noqa: PTH112 - it never raises
        recorded = known if known is not None and known.root == root else None
        tree = None if root is None else _work_tree(root)
        if tree is not None and tree.remote is None and remote is not None:
            tree = msgspec.structs.replace(tree, remote=remote)
        return self._bounded(placed(wanted, tree, recorded, own_tenant=self._own_tenant), wanted)

    def record(self, placement: Placement) -> Placement:
        """Record the project of a request to index. The first recorded tenant of a folder stays."""
        if placement.project is None or self._catalog.projects.at([placement.project.root]):
            return placement
        project = self._catalog.projects.record(placement.project)
        if not self._principal.owns(project.tenant_id):
            raise NotAllowed(f"another project was recorded at {project.root} meanwhile")
        return msgspec.structs.replace(placement, tenant_id=project.tenant_id, project=project)

    def for_reading(self, path: str, wanted: WantedPlace) -> Placement:
        """Place a request about documents at a path, or about those of the folder one is in."""
        if isinstance(wanted.project, str) and wanted.tenant_id is None:
            scope = self.scope_of(wanted.project)
            return Placement(scope["tenant_id"], wanted.branch or scope.get("branch"))
        found = placed_to_read(path, wanted, self._catalog.projects.at, own_tenant=self._own_tenant)
        return self._bounded(found, wanted)

    def _bounded(self, placement: Placement, wanted: WantedPlace) -> Placement:
        """Keep a decision within the tenants of a key: other than those, the key's own one."""
        principal, default = self._principal, self._settings.tenant_id
        if wanted.tenant_id is not None:
            return msgspec.structs.replace(placement, tenant_id=principal.tenant(wanted.tenant_id, default))
        project = placement.project
        if not principal.bound or (project is not None and principal.owns(project.tenant_id)):
            return placement
        # The branch of a project stays only where the request asked for the project.
        branch = placement.branch if wanted.project or project is None else wanted.branch
        return Placement(principal.tenant(None, default), branch)

    # Parts of the index that a search covers.

    def search_scope(
        self,
        *,
        tenant_id: str | None = None,
        branch: str | None = None,
        project: ProjectChoice = None,
        every: bool = False,
    ) -> SearchScope:
        """The scope of a search: one tenant or project, or (``every``) all that the sender may read.

        By default it is the tenant of the key or of the settings. A ``project`` true is the one around the
        current folder.
        """
        if (tenant_id is not None) + (project is not None) + every > 1:
            raise InvalidRequest("tenant_id, project and all: give one of them")
        if every:
            if branch is not None:
                raise InvalidRequest("branch: not together with all: projects have branches of their own")
            return self._every()
        if isinstance(project, str):
            scope = self.scope_of(project)
            return _single(str(scope["tenant_id"]), branch or scope.get("branch"), self.names())
        if project:
            placement = self.for_reading(os.curdir, WantedPlace(None, branch, True))
            if placement.project is None:
                raise UnknownProject("the current folder is in no project that was indexed")
            return self.scope_at(placement)
        return _single(self._principal.tenant(tenant_id, self._settings.tenant_id), branch)

    def scope_at(self, placement: Placement, *, notes: bool = True) -> SearchScope:
        """The scope of a search at a place: its project, and with ``notes`` those of a person.

        Of a project that is on this machine, the checked-out branch is searched.
        """
        tenant = placement.tenant_id or self._principal.tenant(None, self._settings.tenant_id)
        project = placement.project
        own = _single(tenant, placement.branch, None if project is None else {tenant: project.name})
        if project is None or not notes or self._principal.bound:
            return own
        default = self._settings.tenant_id
        person = SearchedPart(tenant_id=default, notes_only=True)
        filters: DocumentFilters = {"tenant_id": default, "branch": None, "path": f"{NOTES}*"}
        return SearchScope((*own.filters, filters), Coverage(parts=(*own.covered.parts, person)))

    def _every(self) -> SearchScope:
        """Every tenant that the sender may read; of a project its checked-out branch, if it is indexed."""
        with self._catalog.snapshot() as snapshot:
            counts = [
                one for one in snapshot.tenants() if one.sources and self._principal.owns(one.tenant_id)
            ]
        recorded = self._catalog.projects.all()
        names = project_names(recorded)
        roots = {one.tenant_id: one.root for one in recorded}
        indexed = {(one.tenant_id, one.branch) for one in counts}
        found: list[SearchScope] = []
        for tenant_id in dict.fromkeys(one.tenant_id for one in counts):
            branch = _work_tree(roots[tenant_id]).branch if tenant_id in roots else None
            found.append(_single(tenant_id, branch if (tenant_id, branch) in indexed else None, names))
        if not found:
            first = next(iter(self._principal.tenants), self._settings.tenant_id)
            found = [_single(first, None)]
        filters = tuple(one for scope in found for one in scope.filters)
        parts = tuple(part for scope in found for part in scope.covered.parts)
        return SearchScope(filters, Coverage(parts=parts, everything=True))

    def scope_of(self, project: str) -> DocumentFilters:
        """Filters for a search of one project, by its name or tenant, and on this machine by its folder."""
        names = {tenant: name for tenant, name in self.names().items() if self._principal.owns(tenant)}
        named = [tenant for tenant, name in names.items() if project in (name, tenant)]
        if not named and self._principal is LOCAL and os.path.lexists(project):
            recorded = _deepest(self._catalog, real_path(project))
            named = [] if recorded is None else [recorded.tenant_id]
        if len(named) != 1:
            raise UnknownProject(f"no project {project[:200]!r}")
        indexed = [one for one in self._every().filters if one.get("tenant_id") == named[0]]
        return indexed[0] if indexed else {"tenant_id": named[0]}

    # Names.

    def names(self) -> dict[str, str]:
        """Names of projects by tenant. Two projects of one name have a part of their tenants' ids as well."""
        return project_names(self._catalog.projects.all())


def _single(tenant_id: str, branch: str | None, names: Mapping[str, str] | None = None) -> SearchScope:
    """The scope of one tenant. ``names``: of projects, by tenant."""
    filters: DocumentFilters = {"tenant_id": tenant_id, "branch": branch}
    name = None if names is None else names.get(tenant_id)
    return SearchScope((filters,), Coverage(parts=(SearchedPart(tenant_id, name, branch),)))


class ProjectView(msgspec.Struct, frozen=True):
    """A project with its folders and branches."""

    name: str
    tenant_id: str
    remote: str
    roots: list[str]
    branches: list[TenantCount]

    @property
    def checked_out(self) -> list[str]:
        """Branches that are checked out in a folder of the project."""
        return sorted({_work_tree(root).branch for root in self.roots if os.path.isdir(root)})  # noqa: PTH112 - it never raises


class Prune(msgspec.Struct, frozen=True):
    """Branches of a project missing from the repository, and the reason if the repository is not readable."""

    project: ProjectView
    branches: list[TenantCount]
    kept_because: str | None = None


class Projects(Places):
    """The projects of one catalog, with the jobs that remove their branches."""

    def __init__(
        self, catalog: Catalog, jobs: Jobs, settings: Settings, principal: Principal = LOCAL
    ) -> None:
        super().__init__(catalog, settings, principal)
        self._jobs = jobs

    def all(self) -> list[ProjectView]:
        """All projects, by name."""
        with self._catalog.snapshot() as snapshot:
            counts = snapshot.tenants()
        return project_views(self._catalog.projects.all(), counts)

    def find(self, named: str) -> ProjectView:
        """The project with a name, at a path, or with a tenant id beginning like this."""
        return find_project(self.all(), named, real_path(named))

    # Forgotten branches.

    def prunable(self, project: ProjectView, branches: Sequence[str] = ()) -> Prune:
        """Branches to remove: the named ones, or those missing from every repository of the project."""
        if branches:
            known = {one.branch for one in project.branches}
            missing = [name for name in branches if name not in known]
            if missing:
                raise InvalidRequest(
                    f"{project.name} has no indexed branch {missing[0][:200]!r}",
                    remedy="List the branches: penstock project show",
                )
            return Prune(project, [one for one in project.branches if one.branch in branches])
        existing: set[str] = set()
        for root in project.roots:
            found = repository.find_repository(root)
            names = None if found is None or found.root != root else repository.branches_of(found)
            if names is None:
                # Another host, an unmounted disk, or a moved folder: its branches may well exist.
                return Prune(project, [], f"the branches of {root} cannot be read here")
            existing |= names
        return Prune(project, [one for one in project.branches if one.branch not in existing])

    def prune(self, plans: Iterable[Prune]) -> list[Receipt]:
        """Queue a removal for each branch."""
        places = [
            Place(plan.project.tenant_id, one.collection, one.branch)
            for plan in plans
            for one in plan.branches
        ]
        submissions = [submission_at(place, "folder", "delete", {"folder_path": "/"}) for place in places]
        return self._jobs.submit_many(submissions, limited=False, exact=True) if submissions else []

    def move(self, old: str, new: str) -> ProjectRoot:
        """Record that the folder of a project was moved; its documents keep their tenant."""
        before, after = real_path(old), real_path(new)
        if not os.path.isdir(after):  # noqa: PTH112 - it never raises
            raise InvalidRequest(f"{new} is not a folder", remedy="Move the folder first.")
        if not self._catalog.projects.move(before, after):
            raise UnknownProject(f"no project was indexed at {before}")
        return self._catalog.projects.at([after])[0]


class ProjectFolder(Protocol):
    """A folder that was indexed as a project, from a catalog or from a server."""

    @property
    def root(self) -> str: ...

    @property
    def tenant_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def remote(self) -> str: ...


def project_names(roots: Sequence[ProjectFolder]) -> dict[str, str]:
    """Names of projects by tenant. Two projects of one name have a part of their tenants' ids as well."""
    first = {one.tenant_id: one.name for one in reversed(roots)}
    taken = list(first.values())
    return {
        tenant: name if taken.count(name) == 1 else f"{name}#{tenant[:6]}" for tenant, name in first.items()
    }


def project_views(roots: Sequence[ProjectFolder], counts: Sequence[TenantCount]) -> list[ProjectView]:
    """Projects with their folders and branches, by name."""
    found = [_view(tenant, name, roots, counts) for tenant, name in project_names(roots).items()]
    return sorted(found, key=lambda view: (view.name, view.tenant_id))


def find_project(every: Sequence[ProjectView], named: str, path: str) -> ProjectView:
    """The project with a name, at an absolute path, or with a tenant whose id starts like the name."""
    found = [one for one in every if named in (one.name, one.tenant_id)]
    if not found:
        around = [
            (len(root), one)
            for one in every
            for root in one.roots
            if path == root or path.startswith(root.rstrip("/") + "/")
        ]
        found = [max(around, key=lambda each: each[0])[1]] if around else []
    if not found and len(named) >= _FEWEST_DIGITS:
        found = [one for one in every if one.tenant_id.startswith(named)]
    if len(found) != 1:
        raise UnknownProject(f"no project {named[:200]!r}" if not found else f"{named!r} is not unique")
    return found[0]


def _view(
    tenant_id: str, name: str, roots: Sequence[ProjectFolder], counts: Sequence[TenantCount]
) -> ProjectView:
    own = [one for one in roots if one.tenant_id == tenant_id]
    return ProjectView(
        name=name,
        tenant_id=tenant_id,
        remote=own[0].remote,
        roots=sorted(one.root for one in own),
        branches=[one for one in counts if one.tenant_id == tenant_id],
    )
