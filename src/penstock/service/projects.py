"""Projects: work trees of git repositories, with a tenant each and documents for each branch.

One rule, ``placed``, decides tenant and branch for every door; decision 0056 gives its reasons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypedDict

from penstock.catalog.parts import ProjectRoot
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Place
from penstock.catalog.views import TenantCount
from penstock.config import DEFAULT_TENANT, Settings
from penstock.errors import InvalidRequest, UnknownProject
from penstock.items import NOTES
from penstock.named_tuple import NamedTuple
from penstock.pipeline.walk import repository
from penstock.service import paths
from penstock.service.document_filters import DocumentFilters
from penstock.service.jobs import Jobs
from penstock.service.real_path import real_path
from penstock.service.requests import Submission
from penstock.service.responses import Receipt

NO_GIT_BRANCH = "main"
"""The branch of a project that is no git repository."""
FEWEST_DIGITS = 4
"""Shortest start of a tenant's id that names its project."""


class WorkTree(NamedTuple):
    """A work tree as it is on the disk now. ``remote`` may hold a password: it is never shown or stored."""

    root: str
    remote: str | None
    branch: str


class PlaceNames(TypedDict, total=False):
    """Tenant and branch, as far as they are decided."""

    tenant_id: str
    branch: str


class Placement(NamedTuple):
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


class WantedPlace(NamedTuple):
    """The place stated by a request. ``project``: wanted or not; None: by the rule."""

    tenant_id: str | None = None
    branch: str | None = None
    project: bool | None = None


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


def work_tree(root: str) -> WorkTree:
    """The work tree with this top folder; a folder without git has one branch."""
    found = repository.find_repository(root)
    if found is None or found.root != root:
        return WorkTree(root, None, NO_GIT_BRANCH)
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
    above = [real, *map(str, Path(real).parents)]
    recorded = max(recorded_at(above), key=lambda one: len(one.root), default=None)
    tree = None if recorded is None else work_tree(recorded.root)
    return placed(wanted, tree, recorded, reads=True, own_tenant=own_tenant)


def _deepest(catalog: Catalog, path: str) -> ProjectRoot | None:
    """The nearest recorded project above a path."""
    above = [path, *map(str, Path(path).parents)]
    return max(catalog.projects.at(above), key=lambda one: len(one.root), default=None)


class ProjectView(NamedTuple):
    """A project with its folders and branches."""

    name: str
    tenant_id: str
    remote: str
    roots: list[str]
    branches: list[TenantCount]

    @property
    def checked_out(self) -> list[str]:
        """Branches that are checked out in a folder of the project."""
        return sorted({work_tree(root).branch for root in self.roots if os.path.isdir(root)})  # noqa: PTH112 - it never raises


class Prune(NamedTuple):
    """Branches of a project missing from the repository, and the reason if the repository is not readable."""

    project: ProjectView
    branches: list[TenantCount]
    kept_because: str | None = None


class Projects:
    """The projects of one catalog."""

    def __init__(self, catalog: Catalog, jobs: Jobs, settings: Settings) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._own_tenant = settings.tenant_id != DEFAULT_TENANT

    def roots(self) -> list[ProjectRoot]:
        """All folders that were indexed as projects, by name and folder."""
        return self._catalog.projects.all()

    # Places.

    def for_index(self, path: str, wanted: WantedPlace) -> Placement:
        """Place a request to index a path. Web pages and libraries belong to no project."""
        if paths.off_disk(path) is not None:
            return placed(wanted, None, None)
        real = real_path(path)
        known = _deepest(self._catalog, real)
        found = repository.find_repository(real)
        root = found.root if found is not None else None
        if known is not None and (root is None or len(known.root) > len(root)):
            root = known.root
        if root is None and wanted.project:
            root = real if os.path.isdir(real) else str(Path(real).parent)  # noqa: PTH112 - it never raises
        recorded = known if known is not None and known.root == root else None
        tree = None if root is None else work_tree(root)
        return placed(wanted, tree, recorded, own_tenant=self._own_tenant)

    def record(self, placement: Placement) -> Placement:
        """Record the project of a request to index. The first recorded tenant of a folder stays."""
        if placement.project is None or self._catalog.projects.at([placement.project.root]):
            return placement
        project = self._catalog.projects.record(placement.project)
        return placement._replace(tenant_id=project.tenant_id, project=project)

    def for_reading(self, path: str, wanted: WantedPlace) -> Placement:
        """Place a request about documents at a path, or about those of the folder one is in."""
        return placed_to_read(path, wanted, self._catalog.projects.at, own_tenant=self._own_tenant)

    def scopes(self, place: Placement, *, every: bool = False) -> list[DocumentFilters]:
        """Filters for a search at a place: its project and a person's notes; ``every``: all documents.

        Of a project that is on this machine, the checked-out branch is searched.
        """
        if not every:
            own: DocumentFilters = {"tenant_id": place.tenant_id, "branch": place.branch}
            return [own] if place.project is None else [own, {"path": f"{NOTES}*"}]
        with self._catalog.snapshot() as snapshot:
            counts = [one for one in snapshot.tenants() if one.sources]
        roots = {one.tenant_id: one.root for one in self._catalog.projects.all()}
        indexed = {(one.tenant_id, one.branch) for one in counts}
        found: list[DocumentFilters] = []
        for tenant_id in dict.fromkeys(one.tenant_id for one in counts):
            branch = work_tree(roots[tenant_id]).branch if tenant_id in roots else None
            found.append(
                {"tenant_id": tenant_id, "branch": branch if (tenant_id, branch) in indexed else None}
            )
        return found or [{}]

    def all_scopes(self, tenants: Sequence[str] = ()) -> list[DocumentFilters]:
        """Filters for a search of all documents of some tenants, or of all tenants."""
        found = [one for one in self.scopes(Placement(), every=True) if one.get("tenant_id") in tenants]
        return (found or [{"tenant_id": tenants[0]}]) if tenants else self.scopes(Placement(), every=True)

    def scope_of(self, project: str, tenants: Sequence[str] = ()) -> DocumentFilters:
        """Filters for a search of one project, by its name or tenant; it is one of ``tenants``, if given."""
        named = [
            tenant
            for tenant, name in self.names().items()
            if project in (name, tenant) and (not tenants or tenant in tenants)
        ]
        if len(named) != 1:
            raise UnknownProject(f"no project {project[:200]!r}")
        indexed = [one for one in self.scopes(Placement(), every=True) if one.get("tenant_id") == named[0]]
        return indexed[0] if indexed else {"tenant_id": named[0]}

    # Names.

    def names(self) -> dict[str, str]:
        """Names of projects by tenant. Two projects of one name have a part of their tenants' ids as well."""
        return project_names(self._catalog.projects.all())

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
        submissions: list[Submission] = [
            {
                "item_type": "folder",
                "op": "delete",
                "payload": {"folder_path": "/"},
                "tenant_id": plan.project.tenant_id,
                "collection": one.collection,
                "branch": one.branch,
            }
            for plan in plans
            for one in plan.branches
        ]
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
    return sorted(_view(tenant, name, roots, counts) for tenant, name in project_names(roots).items())


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
    if not found and len(named) >= FEWEST_DIGITS:
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
