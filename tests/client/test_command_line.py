"""Commands through a server: the same output and exit codes as with the stores."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from penstock import Client
from penstock.cli.main import cli
from penstock.cli.session import LOCAL_ONLY
from tests.client.conftest import Indexed

AGES = re.compile(r'(?:\d+ (?:s|min) ago|\bnow\b|in \d+ (?:s|min)) *|"seen_at": "[^"]*"')
"""Ages, with the spaces that make them as wide as their column, and the last report of a worker."""


def command(indexed: Indexed, *arguments: str, code: int | None = None, **environ: str | None) -> Result:
    kept: dict[str, str | None] = {name: None for name in os.environ if name.startswith("PENSTOCK_")}
    own = indexed.server.environment()
    given = {name: value for name, value in own.items() if name.startswith("PENSTOCK_")}
    state = {"PENSTOCK_STATE": str(indexed.server.state), "COLUMNS": "200"}
    result = CliRunner().invoke(cli, list(arguments), env=kept | given | state | environ)
    assert code in (None, result.exit_code), result.output
    return result


COMMANDS = {
    "search": ["search", "water", "of", "the", "mill"],
    "search as json": ["search", "water", "--limit", "1", "--explain", "--json"],
    "search misspelt": ["search", "watter"],
    "context": ["context", "mill water", "--max-tokens", "100"],
    "similar": ["similar", "{mill}:3"],
    "similar to an unknown file": ["similar", "{mill}x"],
    "jobs": ["jobs"],
    "jobs as json": ["jobs", "--json", "--children"],
    "jobs by status": ["jobs", "--status", "failed", "--limit", "1"],
    "job": ["jobs", "{job}"],
    "job as json": ["jobs", "{job}", "--json"],
    "unknown job": ["jobs", "job_none"],
    "documents": ["documents"],
    "documents as json": ["documents", "list", "--json", "--type", "md"],
    "document": ["documents", "show", "{mill}"],
    "document as json": ["documents", "show", "{mill}", "--json"],
    "page": ["documents", "show", "{mill}", "--page", "1"],
    "page as json": ["documents", "show", "{mill}", "--page", "1", "--json"],
    "unknown page": ["documents", "show", "{mill}", "--page", "7"],
    "unknown document": ["documents", "show", "{mill}x"],
    "why": ["why", "{mill}"],
    "why it failed": ["why", "{folder}/broken.pdf"],
    "why of a folder": ["why", "{folder}", "--json"],
    "statistics": ["queue", "stats"],
    "entity": ["graph", "entity", "Ada Lovelace"],
    "entity as json": ["graph", "entity", "Ada Lovelace", "--json"],
    "neighbours": ["graph", "neighbours", "Ada Lovelace", "--hops", "2"],
    "way": ["graph", "path", "Ada Lovelace", "Ada Lovelace"],
    "graph statistics": ["graph", "stats", "--json"],
    "unknown entity": ["graph", "entity", "Nobody"],
    "status": ["status"],
    "status as json": ["status", "--json"],
    "status of a tenant": ["status", "--tenant", "nobody"],
    "history": ["documents", "history", "{mill}"],
    "history as json": ["documents", "history", "{mill}", "--json"],
    "history of an unknown document": ["documents", "history", "{mill}x"],
    "tree": ["documents", "tree", "{mill}"],
    "tree as json": ["documents", "tree", "{mill}", "--json", "--limit", "1"],
    "notes": ["note", "list"],
    "notes as json": ["note", "list", "--json", "--limit", "1"],
    "retry of all": ["retry", "--all-failed", "--tenant", "nobody"],
    "retry of all as json": ["retry", "--all-failed", "--tenant", "nobody", "--json"],
    "retry of an unknown job": ["retry", "job_none"],
    "purge": ["queue", "purge", "--status", "cancelled", "--older-than", "9d", "--yes"],
    "purge as json": ["queue", "purge", "--status", "cancelled", "--older-than", "9d", "--yes", "--json"],
    "rename of nothing": ["rename", "{folder}/none.md", "{folder}/other.md"],
    "list": ["queue", "list"],
    "show": ["queue", "show", "{job}"],
    "cancel of a job": ["queue", "cancel", "{job}"],
    "cancel": ["cancel", "{job}"],
    "pause": ["queue", "pause", "--tenant", "nobody"],
    "resume": ["queue", "resume", "--tenant", "nobody"],
    "pause of nothing": ["queue", "pause"],
    "schedules": ["schedule", "list"],
    "schedules as json": ["schedule", "list", "--json"],
    "collections": ["collection", "list"],
    "collections as json": ["collection", "list", "--json"],
    "clearing of an unknown collection": ["collection", "clear", "nothing", "--yes"],
    "limits": ["limit", "list"],
    "limits as json": ["limit", "list", "--json"],
    "removal of an unknown limit": ["limit", "remove", "nothing"],
    **{
        f"{name} of an unknown schedule": ["schedule", name, "nothing"]
        for name in "show next pause resume run-now remove".split()
    },
    "libraries": ["library", "list"],
    "projects": ["project", "list"],
    **{f"unknown {name}": [name, "show", "nothing"] for name in ("note", "limit", "library", "project")},
    "unknown collection": ["collection", "show", "nothing"],
    "search everywhere": ["search", "water", "--all", "--json"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_same_through_a_server(name: str, indexed: Indexed):
    known = {"{mill}": indexed.mill, "{folder}": str(indexed.folder), "{job}": indexed.job.queue_id}
    words = COMMANDS[name]
    for mark, value in known.items():
        words = [word.replace(mark, value) for word in words]
    sides = ("--no-server",), ("--server", indexed.server.url), ("--no-server",)
    for _ in range(20):  # upkeep may change figures between two commands: the same state is compared
        here, there, again = (command(indexed, *side, *words) for side in sides)
        if AGES.sub("AGE", here.output) == AGES.sub("AGE", again.output):
            break

    assert AGES.sub("AGE", here.output) == AGES.sub("AGE", there.output)
    assert (here.exit_code, True) == (there.exit_code, bool(here.output))


def test_index_through_a_server_waits_and_prints_the_summary(indexed: Indexed):
    server = ("--server", indexed.server.url)
    there = command(indexed, *server, "index", str(indexed.folder), "--wait", "--force", "--graph")
    as_json = command(indexed, *server, "--json", "index", str(indexed.folder), "--wait")
    here = command(indexed, "--no-server", "--json", "index", str(indexed.folder), "--wait")

    assert "Job queued!" in there.stderr
    assert "2 files indexed" in there.stdout
    assert "broken.pdf" in there.stdout
    assert 1 == there.exit_code
    remote, local = json.loads(as_json.stdout), json.loads(here.stdout)
    for answer in (remote, local):
        for name in ("job_id", "seconds", "queue_position", "queue_length"):
            answer.pop(name)
    assert local == remote
    assert here.exit_code == as_json.exit_code


def test_index_through_a_server_is_queued_without_wait(indexed: Indexed):
    answer = command(indexed, "--server", indexed.server.url, "index", str(indexed.folder), code=0)

    job_id = re.search(r"Job ID: (job_\w+)", answer.stderr)
    assert job_id is not None
    assert f"penstock jobs {job_id[1]} --watch" in answer.stderr
    job = indexed.app.wait(job_id[1], timeout=120)
    assert 9 == job.priority


def test_a_path_outside_the_roots_is_refused(indexed: Indexed):
    answer = command(indexed, "--server", indexed.server.url, "index", "/etc", code=1)

    assert "Path '/etc' is outside project. Use --allow-external to override" in answer.stderr


def test_a_note_through_a_server(indexed: Indexed):
    words = ("--server", indexed.server.url, "note", "The owl hoots.", "--tag", "owl")
    answer = command(indexed, *words, code=0)
    if answer.stdout.startswith("Job queued: "):  # on a busy machine: the command waits for seconds only
        indexed.app.wait(answer.stdout.split()[-1], timeout=60)
        answer = command(indexed, *words, code=0)
    assert "The owl hoots." == indexed.app.documents.notes.read(answer.stdout.split()[-1]).text


@pytest.mark.parametrize(
    "words",
    [
        ["rebuild"],
        ["verify"],
        ["documents", "export", "out"],
        ["index", ".", "--dry-run"],
        ["queue", "add", "content", "ingest", "--text", "x"],
    ],
)
def test_what_cannot_be_done_through_a_server_is_refused_with_a_remedy(indexed: Indexed, words: list[str]):
    answer = command(indexed, "--server", indexed.server.url, *words, code=1)

    assert "(ERR_LOCAL_ONLY)" in answer.stderr
    assert "without --server" in answer.stderr


def test_the_server_of_the_environment_counts_less_than_a_named_store(indexed: Indexed, tmp_path: Path):
    nowhere = {"PENSTOCK_SERVER": "http://127.0.0.1:9"}

    chosen = command(indexed, "jobs", code=7, **nowhere)
    named = command(indexed, "--state", str(tmp_path), "jobs", code=0, **nowhere)
    own = command(indexed, "keys", "list", code=0, **nowhere)
    both = command(indexed, "--state", str(tmp_path), "--server", indexed.server.url, "jobs", code=2)

    assert "(ERR_SERVER_UNREACHABLE)" in chosen.stderr
    assert "No jobs match." in named.stdout
    assert "There are no keys" in own.stdout
    assert "--server" in both.stderr


def test_a_running_server_of_the_same_state_answers_searches(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch
):
    import penstock.assembly

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("the stores were opened")

    expected = command(indexed, "--no-server", "search", "water", code=0).output
    monkeypatch.setattr(penstock.assembly, "Assembly", opened)

    assert expected == command(indexed, "search", "water", code=0).output


def test_a_running_server_with_other_settings_is_not_asked(indexed: Indexed):
    other = command(indexed, "search", "water", code=0, PENSTOCK_TENANT_ID="other")

    assert "Nothing found." in other.stdout


def test_the_key_file_has_to_be_private(indexed: Indexed, tmp_path: Path):
    key_file = tmp_path / "key"
    key_file.write_text("ps_secret\n")
    key_file.chmod(0o644)
    given = {"PENSTOCK_API_KEY_FILE": str(key_file)}
    server = ("--server", indexed.server.url)

    open_to_all = command(indexed, *server, "jobs", code=3, **given)
    key_file.chmod(0o600)
    private = command(indexed, *server, "jobs", code=0, **given)

    assert f"chmod 600 {key_file}" in open_to_all.stderr
    assert "ps_secret" not in open_to_all.output + private.output


LOADED = """
import json, sys
from penstock.__main__ import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
HEAVY = frozenset(
    "numpy asyncio ssl http.client httpx sqlite3 penstock.assembly penstock.queue.engine".split()
)


@pytest.mark.parametrize("named", [True, False])
def test_a_cold_search_through_a_server_loads_no_model_and_no_store(indexed: Indexed, named: bool):
    server = ["--server", indexed.server.url] if named else []
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *server, "search", "water"],
        env=indexed.server.environment() | {"PENSTOCK_STATE": str(indexed.server.state)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert set() == HEAVY & set(json.loads(done.stderr.splitlines()[-1]))
    assert "water" in done.stdout


def test_a_running_server_answers_for_the_project_of_the_folder(
    indexed: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = tmp_path / "weir"
    (root / ".git" / "refs" / "heads").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git" / "refs" / "heads" / "main").write_text("0" * 40)
    (root / "gate.md").write_text("The gate of the weir holds back the water.")
    command(indexed, "--no-server", "index", str(root), "--wait", code=0)
    asked = ("--json", "search", "water")
    before = command(indexed, *asked, code=0)
    monkeypatch.chdir(root)
    inside = command(indexed, *asked, code=0)
    with Client(indexed.server.url) as client:
        (project,) = client.projects()
    command(indexed, "--no-server", "delete-tenant", project.tenant_id, "--yes", code=0)

    def paths(result: Result) -> set[str]:
        return {hit["path"] for hit in json.loads(result.stdout)["hits"]}

    assert [str(root / "gate.md")] == [path for path in paths(inside) if not path.startswith("note:")]
    assert str(root / "gate.md") not in paths(before)
    assert (str(root), "weir") == (project.root, project.name)


OTHERWISE_TESTED = {
    "index",
    "note add",
    "delete",
    "delete-tenant",
    "queue retry",
    "limit set",
    "schedule add",
    "library add",
    "library remove",
}
"""Commands through a server that other tests of this module run, or that are another spelling."""


def leaves(group: click.Group, *before: str) -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name in group.commands:
        command = group.commands[name]
        if isinstance(command, click.Group):
            found |= leaves(command, *before, name)
        else:
            found[" ".join((*before, name))] = command
    return found


def test_every_command_works_through_a_server_or_says_that_it_does_not():
    every = set(leaves(cli))
    tested = {
        name
        for words in COMMANDS.values()
        for name in (" ".join(words[:2]), words[0], f"{words[0]} list")
        if name in every
    }

    assert set(LOCAL_ONLY) <= every
    assert every == set(LOCAL_ONLY) | tested | OTHERWISE_TESTED
    assert set() == set(LOCAL_ONLY) & (tested | OTHERWISE_TESTED)


@pytest.mark.parametrize("name", LOCAL_ONLY)
def test_a_command_for_this_machine_refuses_a_server(name: str, tmp_path: Path):
    given = [
        str(next(iter(argument.type.choices))) if isinstance(argument.type, click.Choice) else str(tmp_path)
        for argument in leaves(cli)[name].params
        if isinstance(argument, click.Argument) and argument.required
    ]
    sent = ["--rag", "r", "--path", "p"]
    options = {"redis submit": sent, "ingest submit": sent, "ingest status": ["--job", "j"]}
    words = ["--server", "http://127.0.0.1:9", *name.split(), *given, *options.get(name, [])]
    result = CliRunner().invoke(cli, words, env={"PENSTOCK_STATE": str(tmp_path)})

    assert 1 == result.exit_code, result.output
    assert "ERR_LOCAL_ONLY" in result.stderr
    assert f"penstock {name} does not work through a server" in result.stderr


def test_a_note_is_changed_and_removed_through_a_server(indexed: Indexed):
    server = ("--server", indexed.server.url)
    added = command(indexed, *server, "-q", "note", "The gate sticks.", "--tag", "mill/gate", code=0)
    note_id = added.stdout.strip()
    shown = command(indexed, *server, "note", "show", note_id, "--json", code=0)
    changed = command(indexed, *server, "note", "The gate runs.", "--update", note_id, code=0)
    again = command(indexed, *server, "note", "show", note_id, code=0)
    here = command(indexed, "--no-server", "note", "show", note_id, code=0)
    removed = command(indexed, *server, "note", "The gate runs.", "--delete", code=0)

    assert ("The gate sticks.", ["mill/gate"]) == tuple(json.loads(shown.stdout)[n] for n in ("text", "tags"))
    assert f"Note replaced: {note_id}\n" == changed.stdout
    assert ("The gate runs." in again.stdout, AGES.sub("", here.stdout)) == (True, AGES.sub("", again.stdout))
    assert f"Note removed: {note_id}\n" == removed.stdout
    command(indexed, *server, "note", "show", note_id, code=4)


def test_a_document_and_a_tenant_are_removed_through_a_server(indexed: Indexed):
    server = ("--server", indexed.server.url)
    gone = indexed.server.folder / "gone.md"
    gone.write_text("Gone soon.")
    command(indexed, *server, "index", str(gone), "--wait", code=0)
    queued = command(indexed, *server, "--json", "delete", str(gone), code=0)
    indexed.server.ended(json.loads(queued.stdout)["job_id"])
    tenant = command(indexed, *server, "--json", "delete-tenant", "nobody", "--yes", code=0)
    ended = indexed.server.ended(json.loads(tenant.stdout)["job_id"])

    assert "done" == ended["status"]
    command(indexed, *server, "documents", "show", str(gone), code=4)
    unknown = command(indexed, *server, "delete", "nothing", code=4)
    assert "ERR_UNKNOWN_DOCUMENT" in unknown.stderr


def test_a_schedule_is_managed_through_a_server(indexed: Indexed):
    server = ("--server", indexed.server.url)
    words = (
        "schedule",
        "add",
        "0 3 * * *",
        "index",
        str(indexed.folder),
        "--tz",
        "Europe/Berlin",
        "--replace",
    )
    there = command(indexed, *server, *words, code=0)
    here = command(indexed, "--no-server", *words, code=0)
    outside = command(indexed, *server, "schedule", "add", "@daily", "index", "/etc", code=1)
    called = command(indexed, *server, "--json", "schedule", "add", "@daily", "call", "f", '{"n": 1}', code=0)

    assert here.output == there.output
    assert "Schedule index-docs added" in there.output
    assert "ERR_PATH_OUTSIDE" in outside.stderr
    assert {"n": 1} == json.loads(called.stdout)["payload"]["payload"]
    for act in ("show", "next", "pause", "resume"):
        one = command(indexed, *server, "schedule", act, "index-docs", code=0).output
        assert AGES.sub(
            "", command(indexed, "--no-server", "schedule", act, "index-docs").output
        ) == AGES.sub("", one)
    for name in ("index-docs", "f"):
        command(indexed, *server, "schedule", "remove", name, code=0)
    assert "There are no schedules" in command(indexed, "--no-server", "schedule", "list").output
