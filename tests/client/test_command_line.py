"""Commands through a server: the same output and exit codes as with the stores."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from tests.client.conftest import Indexed

AGES = re.compile(r"\d+ (?:s|min) ago|\bnow\b|in \d+ (?:s|min)")


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
    "cancel": ["cancel", "{job}"],
    "pause": ["queue", "pause", "--tenant", "nobody"],
    "resume": ["queue", "resume", "--tenant", "nobody"],
    "pause of nothing": ["queue", "pause"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_same_through_a_server(name: str, indexed: Indexed):
    known = {"{mill}": indexed.mill, "{folder}": str(indexed.folder), "{job}": indexed.job.queue_id}
    words = COMMANDS[name]
    for mark, value in known.items():
        words = [word.replace(mark, value) for word in words]

    here = command(indexed, "--no-server", *words)
    there = command(indexed, "--server", indexed.server.url, *words)

    assert AGES.sub("AGE", here.output) == AGES.sub("AGE", there.output)
    assert here.exit_code == there.exit_code
    assert here.output


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
    answer = command(
        indexed, "--server", indexed.server.url, "note", "The owl hoots.", "--tag", "owl", code=0
    )

    note_id = answer.stdout.removeprefix("Note added: ").strip()
    assert "The owl hoots." == indexed.app.documents.notes.read(note_id).text


@pytest.mark.parametrize(
    "words",
    [
        ["delete", "x"],
        ["rebuild"],
        ["verify"],
        ["documents", "export", "out"],
        ["note", "--delete", "text"],
        ["index", ".", "--dry-run"],
        ["queue", "add", "content", "ingest", "--text", "x"],
        ["retry", "--all-failed"],
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
