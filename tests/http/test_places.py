"""The place of a document: one rule at every door, and one job for one request."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from penstock import AsyncClient, Client, Penstock, config
from penstock.assembly import Assembly
from penstock.cli.main import cli
from penstock.errors import NotAllowed
from penstock.mcp.server import Toolbox
from penstock.queue.job import Job
from penstock.service.access import Principal
from penstock.service.folders import ChangePlan
from tests.http.live_server import LiveServer

SERVE = ("--no-worker",)
REMOTE = "https://me:s3cret@example.org/ours/mill.git"
TENANT = hashlib.sha256(b"example.org/ours/mill").hexdigest()
DEFAULT = ("default", "main")
PROJECT = (TENANT, "wip")


class Town(NamedTuple):
    """A server with keys, and its stores opened here as well."""

    server: LiveServer
    app: Penstock
    mill: Path
    """A work tree on branch wip."""
    plain: Path
    admin: str
    bound: str
    """A key of tenant acme."""

    def command(self, *arguments: str, key: str | None = None) -> str:
        there = ("--server", self.server.url) if key else ("--state", str(self.server.state), "--no-server")
        environ = {"PENSTOCK_EMBEDDER": "hashing", "PENSTOCK_API_KEY": key}
        done = CliRunner().invoke(cli, [*there, "--json", *arguments], env=environ)
        assert 0 == done.exit_code, done.output
        return str(json.loads(done.stdout)["job_id"])

    def index_mill_only(self) -> None:
        """Index the work tree, and nothing that other tests have queued."""
        for job in self.app.jobs(status="pending", limit=1000):
            self.app.cancel(job.queue_id)
        with self.app.worker_thread():
            self.app.wait(self.app.index(self.mill, force=True).job_id, timeout=60)

    def send(self, route: str, body: dict[str, Any], key: str) -> Any:
        answer = self.server.ask("POST", route, body, key=key)
        assert 200 <= answer.status < 300, answer.body
        return answer.body


@pytest.fixture(scope="module")
def town(server: LiveServer) -> Iterator[Town]:
    mill, plain = server.folder / "files" / "mill", server.folder / "files" / "plain"
    (mill / ".git" / "refs" / "heads").mkdir(parents=True)
    (mill / ".git" / "config").write_text(f'[remote "origin"]\n url = {REMOTE}\n')
    (mill / ".git" / "HEAD").write_text("ref: refs/heads/wip\n")
    (mill / ".git" / "refs" / "heads" / "wip").write_text("0" * 40)
    (mill / "weir.md").write_text("The weir holds back the water.")
    plain.mkdir()
    (plain / "barn.md").write_text("Hay is kept dry.")
    admin, bound = server.make_key("admin", "admin"), server.make_key("acme", "write", "acme")
    settings = config.load(server.environment(), state_dir=server.state)
    with Penstock(settings=settings) as app:
        yield Town(server, app, mill, plain, admin, bound)


def _library(town: Town, path: Path, **asked: Any) -> str:
    return town.app.index(path, **asked).job_id


def _post(town: Town, path: Path, **asked: Any) -> str:
    return str(town.send("/index", {"path": str(path), **asked}, town.admin)["job_id"])


def _client(town: Town, path: Path, **asked: Any) -> str:
    with Client(town.server.url, town.admin) as client:
        return client.index(path, **asked).job_id


def _async_client(town: Town, path: Path, **asked: Any) -> str:
    async def sent() -> str:
        async with AsyncClient(town.server.url, town.admin) as client:
            return (await client.index(path, **asked)).job_id

    return asyncio.run(sent())


def _flags(asked: dict[str, Any]) -> list[str]:
    tenant = ["--tenant", asked["tenant_id"]] if "tenant_id" in asked else []
    return tenant + (["--no-project"] if asked.get("project") is False else [])


def _command(town: Town, path: Path, **asked: Any) -> str:
    return town.command("index", str(path), "--no-wait", *_flags(asked))


def _command_by_server(town: Town, path: Path, **asked: Any) -> str:
    return town.command("index", str(path), *_flags(asked), key=town.admin)


def _queue_add(town: Town, path: Path, **asked: Any) -> str:
    return town.command("queue", "add", "folder", "ingest", "--path", str(path), *_flags(asked))


def _queue_add_project(town: Town, path: Path, **asked: Any) -> str:
    return town.command("queue", "add", "project", "ingest", "--path", str(path), *_flags(asked))


def _schedule(town: Town, path: Path, **asked: Any) -> str:
    made = town.app.schedules.add_index("@daily", path, index=asked, replace=True)  # type: ignore[arg-type]
    return town.app.schedules.run_now(made.name, tenant_id=made.tenant_id).job_id


def _schedule_by_server(town: Town, path: Path, **asked: Any) -> str:
    body = {"timing": "@daily", "action": "index", "path": str(path), "replace": True, **asked}
    made = town.send("/schedules", body, town.admin)
    route = f"/schedules/{made['name']}/run?tenant_id={made['tenant_id']}"
    return str(town.send(route, {}, town.admin)["job_id"])


def _schedule_command(town: Town, path: Path, **asked: Any) -> str:
    there = ["--state", str(town.server.state), "--no-server", "--json"]
    given = ["schedule", "add", "@daily", "index", str(path), "--replace", *_flags(asked)]
    made = json.loads(CliRunner().invoke(cli, [*there, *given]).stdout)
    return town.command("schedule", "run-now", made["name"], "--tenant", made["tenant_id"])


def _watch(town: Town, path: Path, **asked: Any) -> str:
    plan = ChangePlan(town.app.documents, str(path), town.app.settings, asked)
    return town.app.submit(exact=True, **plan.whole()).job_id


def _agent(town: Town, path: Path, **asked: Any) -> str:
    with closing(Assembly(town.app.settings)) as assembly:
        return Toolbox(assembly).index_path(str(path), **asked).job_id


def _agent_by_server(town: Town, path: Path, **asked: Any) -> str:
    key = Principal(name="admin", scope="admin", auth="key")
    with closing(Assembly(town.app.settings)) as assembly:
        return Toolbox(assembly, principal=key).index_path(str(path), **asked).job_id


Door = Callable[..., str]
DOORS: list[Door] = [
    _library,
    _post,
    _client,
    _async_client,
    _command,
    _command_by_server,
    _queue_add,
    _schedule,
    _schedule_by_server,
    _schedule_command,
    _watch,
    _agent,
    _agent_by_server,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__.strip("_"))
@pytest.mark.parametrize(
    ("asked", "folder", "expected"),
    [
        ({"tenant_id": "bakery"}, "mill", ("bakery", "main")),
        ({}, "mill", PROJECT),
        ({"project": False}, "mill", DEFAULT),
        ({}, "plain", DEFAULT),
    ],
    ids=["tenant", "project", "no-project", "plain"],
)
def test_every_door_has_the_same_rule(
    town: Town, door: Door, asked: dict[str, Any], folder: str, expected: tuple[str, str]
):
    if "tenant_id" in asked and door in (_agent, _agent_by_server):
        pytest.skip("a tool for agents names no tenant")
    job = town.app.job(door(town, getattr(town, folder), **asked))

    assert expected == (job.tenant_id, job.branch)


def test_the_same_request_is_one_job_at_every_door(town: Town):
    """A folder of a project below, and its top folder, which is an item of the type project."""
    below = town.mill / "docs"
    below.mkdir()
    (below / "gate.md").write_text("The gate.")
    # Source code is included in a repository, and a raw job has to say so itself.
    doors = [door for door in DOORS if door not in (_queue_add, _watch, _schedule_command)]

    assert 1 == len({door(town, below) for door in doors})
    found = {door(town, town.mill) for door in [*doors, _queue_add_project]}
    assert 1 == len(found)
    (job,) = map(town.app.job, found)
    assert ("project", {"project_root": str(town.mill)}, *PROJECT) == (
        job.item_type,
        job.payload,
        job.tenant_id,
        job.branch,
    )


def test_a_file_is_one_job_at_every_door(town: Town):
    weir = town.mill / "weir.md"
    added = town.command("queue", "add", "file", "ingest", "--path", str(weir))

    assert {added} == {door(town, weir) for door in (_library, _post, _command, _agent, _schedule)}
    job = town.app.job(added)
    work_tree = json.loads(job.metadata)["work_tree"]
    assert (*PROJECT, str(town.mill)) == (job.tenant_id, job.branch, work_tree)


def test_a_project_item_of_a_folder_without_git_has_the_tenant_of_its_path(town: Town, tmp_path: Path):
    (tmp_path / "a.md").write_text("A page.")
    root = str(tmp_path.resolve())

    for op in ("ingest", "scan"):
        added = town.command("queue", "add", "project", op, "--path", str(tmp_path), "--force")
        job = town.app.job(added)
        assert (hashlib.sha256(root.encode()).hexdigest(), "main") == (job.tenant_id, job.branch)


def test_a_project_item_that_states_its_remote_has_the_tenant_of_the_remote(town: Town, tmp_path: Path):
    stated = json.dumps({"git_remote": "git@example.org:ours/barn.git"})

    added = town.command("queue", "add", "project", "scan", "--path", str(tmp_path), "--payload", stated)

    assert hashlib.sha256(b"example.org/ours/barn").hexdigest() == town.app.job(added).tenant_id


def test_commands_through_a_server_of_this_machine_are_about_the_project_around_them(
    town: Town, monkeypatch: pytest.MonkeyPatch
):
    there = ("--server", town.server.url)
    environ = {"PENSTOCK_API_KEY": town.admin}

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, [*there, *arguments], env=environ, catch_exceptions=False)

    town.index_mill_only()
    monkeypatch.chdir(town.mill)

    found = run("search", "weir")
    assert "weir.md" in found.stdout
    assert "Searched project ours/mill (branch wip). Search everything with: --all\n" == found.stderr
    assert "Nothing found.\n" == run("search", "weir", "--no-project").stdout
    assert "indexed" == json.loads(run("why", "weir.md", "--json").stdout)["verdict"]
    assert 0 == run("documents", "show", "./weir.md").exit_code
    monkeypatch.chdir(town.plain)
    assert "Searched tenant default. Search everything with: --all\n" in run("search", "weir").stderr


def test_answers_of_a_server_say_what_was_searched(town: Town):
    town.index_mill_only()

    def covered(route: str = "/search", **asked: Any) -> tuple[bool, list[str]]:
        found = town.send(route, {"query": "weir", **asked}, town.admin)["covered"]
        return found["everything"], [part["tenant_id"] for part in found["parts"]]

    for route in ("/search", "/context"):
        assert (False, ["default"]) == covered(route)
        assert (False, [TENANT]) == covered(route, project="ours/mill")
        assert TENANT in covered(route, all=True)[1]
    with Client(town.server.url, town.admin) as client:
        assert ["weir.md"] == [Path(hit.path).name for hit in client.search("weir", project="ours/mill")]
        assert client.ask("weir", all=True).covered.everything
        assert "indexed" == client.why(str(town.mill / "weir.md")).verdict
        assert "indexed" != client.why(str(town.mill / "weir.md"), project=False).verdict
        assert "indexed" == client.why(str(town.mill / "weir.md"), project="ours/mill").verdict
        assert TENANT == client.document(str(town.mill / "weir.md")).source.place.tenant_id
        (only,) = client.documents(project="ours/mill", path="*/weir.md")
        assert [hit.path for hit in client.similar(only.source_id)] == [
            hit.path for hit in client.similar(only.path)
        ]
        receipt = client.remove(only.path)
        assert PROJECT == (town.app.job(receipt.job_id).tenant_id, town.app.job(receipt.job_id).branch)
        assert client.history(only.source_id) == client.history(only.path)


def test_an_agent_is_told_what_was_searched(town: Town, monkeypatch: pytest.MonkeyPatch):
    town.index_mill_only()
    how = "Search everything with: all=true"
    with closing(Assembly(town.app.settings)) as assembly:
        tools = Toolbox(assembly)
        monkeypatch.chdir(town.mill)
        ours = f"Searched project ours/mill (branch wip) and your notes. {how}"
        assert ours == tools.search("weir").splitlines()[-1] == tools.context("weir").splitlines()[-1]
        monkeypatch.chdir(town.plain)
        assert f"Searched tenant default. {how}" == tools.search("weir").splitlines()[-1]
        assert "weir.md" in tools.search("weir", project="ours/mill")
        assert "weir.md" in tools.list_documents(project="ours/mill")
        found = tools.search("weir", every=True)
        assert "weir.md" in found
        assert found.splitlines()[-1].startswith("Searched everything: ")
        assert "indexed" in tools.why(str(town.mill / "weir.md"))
        assert "indexed" not in tools.why(str(town.plain / "barn.md"), every=True)


# Keys bound to tenants.


def bound_doors(town: Town) -> dict[str, Callable[[], Job]]:
    """What a key of tenant acme can ask for about the work tree of another tenant."""
    acme = Principal(name="acme", scope="write", tenants=("acme",), auth="key")
    documents = town.app.documents.seen_by(acme)

    def agent() -> Job:
        with closing(Assembly(town.app.settings)) as assembly:
            return town.app.job(Toolbox(assembly, principal=acme).index_path(str(town.mill)).job_id)

    return {
        "index": lambda: town.app.job(documents.index(town.mill).job_id),
        "index as a project": lambda: town.app.job(documents.index(town.mill, project=True).job_id),
        "agent": agent,
        "removal": lambda: town.app.job(
            town.app.submit(exact=True, **documents.removal(str(town.mill))).job_id
        ),
    }


@pytest.mark.parametrize("door", ["index", "index as a project", "agent", "removal"])
def test_a_key_bound_to_a_tenant_never_reaches_another_one(town: Town, door: str):
    town.app.index(town.mill)

    assert "acme" == bound_doors(town)[door]().tenant_id


def test_a_key_of_the_tenant_of_a_project_has_its_place(town: Town):
    owner = Principal(name="ours", scope="write", tenants=("acme", TENANT), auth="key")

    job = town.app.job(town.app.documents.seen_by(owner).index(town.mill).job_id)

    assert PROJECT == (job.tenant_id, job.branch)


def test_a_bound_key_that_names_another_tenant_is_refused(town: Town):
    acme = Principal(name="acme", scope="write", tenants=("acme",), auth="key")
    before = len(town.app.jobs(limit=1000))

    with pytest.raises(NotAllowed):
        town.app.documents.seen_by(acme).index(town.mill, tenant_id=TENANT)
    body = {"path": str(town.mill), "tenant_id": TENANT}
    answer = town.server.ask("POST", "/index", body, key=town.bound)
    assert 403 == answer.status
    assert before == len(town.app.jobs(limit=1000))


def test_an_upload_is_of_the_key_also_where_the_server_is_in_a_work_tree(town: Town):
    """The state directory of a project is often inside of it."""
    (town.server.folder / ".git" / "refs" / "heads").mkdir(parents=True)
    (town.server.folder / ".git" / "HEAD").write_text("ref: refs/heads/wip\n")
    try:
        for key, tenant in ((town.admin, "default"), (town.bound, "acme")):
            answer = town.server.ask("POST", "/files?name=mill.txt", iter([b"text"]), key=key)
            assert 202 == answer.status, answer.body
            job = town.app.job(answer.body["job_id"])
            assert (tenant, "main") == (job.tenant_id, job.branch)
        refused = town.server.ask("POST", "/files?name=a.txt&project=true", iter([b"text"]), key=town.admin)
        assert 422 == refused.status
    finally:
        (town.server.folder / ".git" / "HEAD").unlink()


def test_a_library_is_in_no_project(town: Town):
    submission = town.app.documents.libraries.submission("mill==1.0", source=str(town.mill))

    assert not {"tenant_id", "branch"} & {name for name, value in submission.items() if value is not None}
