"""``penstock queue``: text and JSON output of each command."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.queue import transitions
from penstock.queue.job import ClaimRequest, WorkerReport
from penstock.queue.retry import Classification
from tests.cli.conftest import Run, add, fail

# add


def test_add_says_which_job_and_where_it_stands(run: Run):
    first = run("queue", "add", "content", "ingest", "--text", "one")
    second = run("queue", "add", "content", "ingest", "--text", "two")

    assert first.stdout.startswith("Job queued: job_")
    assert "Queue position: 1 of 1" in first.stdout
    assert "Queue position: 2 of 2" in second.stdout


def test_add_of_a_duplicate_names_the_live_job(run: Run, app: Penstock):
    job_id = add(run)
    again = run("queue", "add", "content", "ingest", "--text", "The mill runs.")

    assert f"Duplicate: job {job_id} already pending\nQueue position: 1 of 1\n" == again.stdout
    app.queue.claim(ClaimRequest("w1"))
    again = run("queue", "add", "content", "ingest", "--text", "The mill runs.")
    assert f"Duplicate: job {job_id} already running\nRun 2 of that job does the work.\n" == again.stdout


def test_add_after_another_job_waits_for_it(ask: Callable[..., Any], run: Run, app: Penstock):
    first = add(run)
    added = run("queue", "add", "content", "ingest", "--text", "later", "--after", first)
    second = added.stdout.split()[2]

    assert f"Job queued: {second}\nIt starts when {first} has ended.\n" == added.stdout
    shown = run("jobs", second).stdout
    assert "pending (after)" in shown
    assert f"waiting for {first} (pending)" in shown
    assert [first] == ask("jobs", second)["after"]
    assert f"Reason  waiting for {first} (pending)" in run("why", second).stdout
    assert (second, "after") == tuple(ask("why", second)[name] for name in ("job_id", "held"))
    app.cancel(first)
    assert f"ERR_DEPENDENCY_FAILED: {first} was cancelled" in run("jobs", second).stdout


def test_add_after_an_unknown_job_is_refused(run: Run):
    refused = run("queue", "add", "content", "ingest", "--text", "later", "--after", "job_none", code=4)

    assert "no job has the id or prefix 'job_none'" in refused.stderr


def test_add_with_a_webhook_adds_its_delivery(
    ask: Callable[..., Any], run: Run, monkeypatch: pytest.MonkeyPatch
):
    url = "https://example.org/hooks"
    refused = run("queue", "add", "content", "ingest", "--text", "later", "--webhook", url, code=1)
    assert "ERR_WEBHOOK_KEY" in refused.stderr
    assert 0 == len(ask("jobs")["jobs"])
    monkeypatch.setenv("PENSTOCK_WEBHOOK_KEY", "a secret of the mill")
    added = run("queue", "add", "content", "ingest", "--text", "later", "--webhook", url)
    job_id = added.stdout.split()[2]
    (hook,) = [job for job in ask("jobs")["jobs"] if job["item_type"] == "function"]
    assert ([job_id], "run") == (ask("jobs", hook["job_id"])["after"], hook["op"])
    assert f"waiting for {job_id} (pending)" in run("why", hook["job_id"]).stdout


def test_add_force_is_a_job_of_its_own(ask: Callable[..., Any], run: Run):
    job_id = add(run)
    answer = ask("queue", "add", "content", "ingest", "--text", "The mill runs.", "--force")

    assert job_id != answer["job_id"]
    assert not answer["dedupe_hit"]


@pytest.mark.parametrize(
    ("item_type", "field"),
    [("file", "file_path"), ("folder", "folder_path"), ("project", "project_root")],
)
def test_add_makes_a_path_absolute_and_resolves_links(
    run: Run, app: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item_type: str, field: str
):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    run("queue", "add", item_type, "ingest", "--path", "link/../link/a")

    assert {field: str(tmp_path / "real" / "a")} == app.jobs()[0].payload


def test_add_takes_the_payload_as_text_file_or_standard_input(run: Run, app: Penstock, tmp_path: Path):
    (tmp_path / "payload.json").write_text('{"content": "from a file"}')
    run("queue", "add", "content", "ingest", "--payload", '{"content": "as text"}')
    run("queue", "add", "content", "ingest", "--payload", f"@{tmp_path}/payload.json")
    run("queue", "add", "content", "ingest", "--payload", "-", stdin='{"content": "from standard input"}')

    texts = [job.payload["content"] for job in app.jobs(newest_first=False)]
    assert ["as text", "from a file", "from standard input"] == texts


def test_add_joins_payload_and_path(run: Run, app: Penstock):
    run("queue", "add", "folder", "scan", "--path", "/docs", "--payload", '{"patterns": ["*.md"]}')

    assert {"patterns": ["*.md"], "folder_path": "/docs"} == app.jobs()[0].payload


def test_add_passes_on_every_option(run: Run, app: Penstock):
    options = "--tenant me --collection notes --branch dev --priority 3 --delay 2h --key k --id my-1".split()
    told = run("queue", "add", "function", "run", "--payload", '{"function_name": "mail"}', *options)
    job = app.job("my-1")

    assert ("me", "notes", "dev", 3, "cli") == (
        job.tenant_id,
        job.collection,
        job.branch,
        job.priority,
        job.submitted_by,
    )
    assert job.run_at is not None
    assert "Not before 20" in told.stdout
    assert job.dedupe


def test_add_at_a_time(run: Run, app: Penstock):
    run("queue", "add", "content", "ingest", "--text", "x", "--run-at", "2030-01-31T12:00:00Z")

    assert "2030-01-31T12:00:00+00:00" == str(app.jobs()[0].run_at).replace(" ", "T")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["content", "ingest", "--payload", "{"], "ERR_INVALID_PAYLOAD"),
        (["content", "ingest", "--payload", "[1]"], "ERR_INVALID_PAYLOAD"),
        (["content", "ingest", "--payload", "@/no/such/file"], "ERR_INVALID_PAYLOAD"),
        (["content", "ingest", "--text", "a", "--payload", '{"content": "b"}'], "ERR_INVALID_PAYLOAD"),
        (["file", "ingest", "--path", "/a", "--payload", '{"file_path": "/b"}'], "ERR_INVALID_PAYLOAD"),
        (["file", "ingest", "--text", "a"], "ERR_INVALID_PAYLOAD"),
        (["content", "ingest", "--path", "/a"], "ERR_INVALID_PAYLOAD"),
        (["file", "ingest", "--path", "/a\0b"], "ERR_RELATIVE_PATH"),
        (["file", "ingest"], "ERR_INVALID_PAYLOAD"),
        (["fiel", "ingest", "--payload", "{}"], "ERR_UNKNOWN_ITEM_TYPE"),
        (["content", "ingest", "--text", "a", "--priority", "11"], "ERR_INVALID_PRIORITY"),
        (["content", "ingest", "--text", "a", "--run-at", "noon"], "ERR_INVALID_TIME"),
        (["content", "ingest", "--text", "a", "--delay", "999999999w"], "ERR_INVALID_TIME"),
        (["content", "ingest", "--text", "\udcff"], "ERR_INVALID_TEXT"),
        (["file", "ingest", "--path", "/\udcff"], "ERR_INVALID_TEXT"),
        (["content", "ingest", "--text", "a", "--tenant", "\x1b[2J"], "ERR_INVALID_NAME"),
    ],
)
def test_add_refuses_in_one_line_and_writes_nothing(run: Run, app: Penstock, arguments: list[str], code: str):
    result = run("queue", "add", *arguments, code=1)

    assert "" == result.stdout
    assert 1 == result.stderr.count("\n")
    assert result.stderr.startswith("error: ")
    assert f"({code}). " in result.stderr
    assert "\x1b" not in result.stderr
    assert [] == app.jobs()


# list, show, stats


def test_list_is_aligned_and_whole_when_it_is_no_terminal(run: Run):
    long = "/srv/" + "a/" * 60 + "end"
    run("queue", "add", "file", "ingest", "--payload", json.dumps({"file_path": long}))
    add(run, "short", "--delay", "5m")
    lines = run("queue", "list").stdout.splitlines()

    assert 3 == len(lines)
    assert ["job", "status", "added", "what"] == lines[0].split()
    assert "pending (time)" in lines[1]
    assert lines[2].endswith(long)
    assert lines[1].index("content ingest") == lines[2].index("file ingest")
    assert "\x1b" not in "".join(lines)


def test_list_filters_by_any_synonym(run: Run, ask: Callable[..., Any], app: Penstock):
    one = add(run, "one", "--tenant", "a")
    two = add(run, "two", "--tenant", "b")
    app.queue.claim(ClaimRequest("w1"))

    def ids(*arguments: str) -> list[str]:
        return [job["job_id"] for job in ask("queue", "list", *arguments)["jobs"]]

    assert [one] == ids("--status", "running") == ids("--status", "IN_PROGRESS") == ids("--tenant", "a")
    assert [two, one] == ids("--status", "queued,processing") == ids("--type", "content")
    assert [two] == ids("--status", "queued") == ids("--collection", "default", "--tenant", "b")
    assert [] == ids("--status", "failed", "--status", "done")
    assert "No jobs match.\n" == run("queue", "list", "--type", "file").stdout


def test_list_goes_page_by_page(run: Run, ask: Callable[..., Any]):
    ids = [add(run, f"text {number}") for number in range(3)]
    first = ask("queue", "list", "--limit", "2")
    second = ask("queue", "list", "--limit", "2", "--after", first["next"])

    assert ids[::-1] == [job["job_id"] for job in first["jobs"] + second["jobs"]]
    assert second["next"] is None
    assert f"--after {ids[1]}" in run("queue", "list", "--limit", "2").stderr


def test_show_tells_the_reason_and_the_history(run: Run, app: Penstock):
    job_id = add(run)
    fail(app)
    app.retry(job_id)
    told = run("queue", "show", job_id[:-1]).stdout

    assert "next in line; no worker is running" in told
    assert "ERR_PARSE: torn page" in told
    assert ["submitted", "started", "failed", "requeued"] == [
        word for word in told.split() if word in {"submitted", "started", "failed", "requeued"}
    ]
    assert '{"content":"The mill runs."}' in told


def test_show_in_json_speaks_the_words_of_the_command_line(run: Run, ask: Callable[..., Any], app: Penstock):
    job_id = add(run)
    app.queue.claim(ClaimRequest("w1"))
    job = ask("queue", "show", job_id)

    assert (job_id, "running", {"content": "The mill runs."}) == (
        job["job_id"],
        job["status"],
        job["payload"],
    )
    assert ["submitted", "started"] == [entry["what"] for entry in job["history"]]
    assert (27, "Z") == (len(job["created_at"]), job["created_at"][-1])
    assert not [name for name in job if name.endswith("_json") or name == "queue_id"]


def test_what_was_queued_is_shown_without_its_control_characters(run: Run):
    job_id = add(run, "\x1b[2J\x07[red]plain[/red]")

    for told in (run("queue", "list").stdout, run("queue", "show", job_id).stdout):
        assert r"\x1b[2J\x07[red]plain[/red]" in told


def test_stats_count_in_the_words_of_the_command_line(run: Run, ask: Callable[..., Any], app: Penstock):
    add(run, "one")
    add(run, "two", "--delay", "1h")
    app.queue.claim(ClaimRequest("w1"))
    run("queue", "pause", "--tenant", "a")
    stats = ask("queue", "stats")

    assert {"pending": 1, "running": 1, "done": 0, "failed": 0, "cancelled": 0} == stats["by_status"]
    assert {"content": {"pending": 1, "running": 1}} == stats["by_item_type"]
    assert [{"tenant_id": "a", "collection": "*"}] == stats["paused"]
    told = run("queue", "stats").stdout
    assert told.splitlines()[0].split() == ["pending", "running", "done", "failed", "cancelled"]
    assert "1 by time" in told


def test_stats_show_what_workers_did_and_which_services_are_down(
    run: Run, ask: Callable[..., Any], app: Penstock
):
    info = {"processes": 2, "executed": 1204, "refused": 1, "deaths": 1, "last_death": "killed by signal 9"}
    info |= {"stuck": 0, "services": {"qdrant": "open"}}
    started = datetime(2026, 1, 1, tzinfo=UTC)
    app.queue.report(
        WorkerReport(worker_id="w1", host="here", pid=7, started_at=started, info_json=json.dumps(info))
    )

    told = run("queue", "stats").stdout
    assert "2 processes, 1,204 jobs run, 1 late result refused, 1 process died (last: killed by sig" in told
    assert "qdrant is down; jobs that need it wait (w1)" in told
    (worker,) = ask("queue", "stats")["workers"]
    assert ("w1", info) == (worker["worker_id"], worker["info"])


# cancel, retry, purge, pause


def test_cancel_at_once_and_as_a_request(run: Run, ask: Callable[..., Any], app: Penstock):
    running = add(run, "one")
    app.queue.claim(ClaimRequest("w1"))
    pending = add(run, "two")

    assert "cancelled" == ask("queue", "cancel", pending)["status"]
    assert f"{running}: Worker will stop at next checkpoint\n" == run("queue", "cancel", running).stdout


def test_cancel_of_several_goes_on_after_a_refusal(run: Run, ask: Callable[..., Any], app: Penstock):
    first, second = add(run, "one"), add(run, "two")
    result = run("queue", "cancel", first, "unknown", second, code=4)

    assert f"{first}: Job cancelled\n{second}: Job cancelled\n" == result.stdout
    assert "ERR_JOB_NOT_FOUND" in result.stderr
    answers = ask("queue", "cancel", first, second, code=5)
    assert ["ERR_CANNOT_CANCEL"] * 2 == [answer["error"]["code"] for answer in answers]


def test_retry_one_or_all_failed(run: Run, ask: Callable[..., Any], app: Penstock):
    ids = [add(run, text) for text in ("one", "two", "three")]
    fail(app)

    assert {"job_id": ids[0], "status": "pending", "run": 2} == ask("queue", "retry", ids[0])
    assert "0 jobs queued again\n" == run("queue", "retry", "--all-failed", "--tenant", "other").stdout
    assert {"retried": 2, "twins": {}} == ask("queue", "retry", "--all-failed")
    assert "0 jobs queued again\n" == run("queue", "retry", "--all-failed").stdout


def test_a_list_of_jobs_has_the_codes_of_failed_ones(run: Run, app: Penstock):
    add(run, "one")
    assert "error" not in run("jobs").stdout
    fail(app)
    add(run, "two")

    header, pending, failed = (line.split() for line in run("jobs").stdout.splitlines())
    shown = run("jobs", "--status", "failed")

    assert (["status", "error"], ["failed", "ERR_PARSE"]) == (header[1:3], failed[1:3])
    assert "ERR_PARSE" not in pending
    assert "add --children" in shown.stderr
    assert "add --children" not in run("jobs", "--status", "failed", "--children").stderr


@pytest.mark.parametrize("code", ["ERR_PARSE", "ERR_SERVICE"])
def test_a_failed_job_is_shown_with_a_remedy(run: Run, ask: Callable[..., Any], app: Penstock, code: str):
    job_id = add(run, "one")
    assert ask("jobs", job_id)["remedy"] is None
    (claim,) = app.queue.claim(ClaimRequest("w1", 1))
    app.queue.settle([transitions.failed_attempt(claim, Classification("permanent", code), "torn page")])

    remedies = {
        "ERR_PARSE": "Open the file with the program that made it and save it again.",
        "ERR_SERVICE": f"Remove the cause, then run `penstock retry {job_id}`.",
    }
    assert remedies[code] == ask("jobs", job_id)["remedy"]
    assert f"Remedy    {remedies[code]}" in run("jobs", job_id).stdout


def test_the_error_of_a_retried_job_is_called_the_last_one(run: Run, app: Penstock):
    job_id = add(run, "one")
    fail(app)
    assert "\nError     ERR_PARSE: " in run("jobs", job_id).stdout

    run("retry", job_id)

    assert "\nLast error  ERR_PARSE: " in run("jobs", job_id).stdout


def test_a_retried_job_was_not_cancelled(run: Run, ask: Callable[..., Any], app: Penstock):
    job_id = add(run, "one")
    run("cancel", job_id)
    assert "\nError     ERR_CANCELLED: Cancelled by user\n" in run("jobs", job_id).stdout

    run("retry", job_id)
    app.queue.claim(ClaimRequest("w1"))

    assert "Cancelled by user" not in run("jobs", job_id).stdout.split("\n\n")[0]
    assert ("running", None) == tuple(ask("jobs", job_id)[name] for name in ("status", "error_message"))


def test_retry_names_the_live_twin(run: Run, app: Penstock):
    old = add(run)
    fail(app)
    twin = add(run)

    assert f"job {twin} is live" in run("queue", "retry", old, code=5).stderr
    assert (
        f"{old}: not retried, live job {twin} has the same key"
        in run("queue", "retry", "--all-failed").stdout
    )


@pytest.mark.parametrize("arguments", [[], ["--all-failed", "job_1"], ["job_1", "--tenant", "a"]])
def test_retry_takes_ids_or_all(run: Run, arguments: list[str]):
    run("queue", "retry", *arguments, code=2)


def test_purge_asks_unless_told_not_to(run: Run, ask: Callable[..., Any], app: Penstock):
    add(run)
    fail(app)

    assert "Add --yes." in run("queue", "purge", "--status", "failed", code=1).stderr
    assert {"removed": 0} == ask("queue", "purge", "--status", "failed", "--older-than", "7d", "--yes")
    assert "0 jobs removed\n" == run("queue", "purge", "--status", "done,canceled", "--yes").stdout
    assert "1 job removed\n" == run("queue", "purge", "--status", "failed", "--yes").stdout
    run("queue", "purge", "--status", "pending", "--yes", code=1)
    run("queue", "purge", "--yes", code=2)


def test_pause_and_resume(run: Run, ask: Callable[..., Any], app: Penstock):
    add(run, "one", "--tenant", "a")

    assert "Paused: tenant a\n" == run("queue", "pause", "--tenant", "a").stdout
    assert [] == app.queue.claim(ClaimRequest("w1"))
    assert "Resumed: tenant a; 1 job released\n" == run("queue", "resume", "--tenant", "a").stdout
    assert {"paused": {"tenant_id": "*", "collection": "*"}} == ask("queue", "pause", "--all")
    assert {"released": 0} == ask("queue", "resume", "--all")
    run("queue", "pause", code=2)
    run("queue", "pause", "--all", "--tenant", "a", code=2)


def test_status_says_that_a_job_in_progress_has_no_worker(run: Run, app: Penstock):
    job_id = app.documents.note("A note whose worker died.").job_id
    assert app.queue.start(job_id, ClaimRequest("dead", 1, timedelta(minutes=1), {}))

    assert run("status").stdout.endswith("\nNo worker is running. Start one with: penstock worker\n")


@pytest.mark.parametrize("command", [["jobs"], ["queue", "list"]], ids=" ".join)
def test_a_list_does_not_begin_after_a_job_that_never_was(
    run: Run, ask: Callable[..., Any], app: Penstock, command: list[str]
):
    job_id = add(run)

    refused = run(*command, "--after", "nonsense", code=4)

    assert ("", True) == (refused.stdout, "ERR_JOB_NOT_FOUND" in refused.stderr)
    purged = f"job_{'f' * 22}"
    assert [job_id] == [one["job_id"] for one in ask(*command, "--after", purged)["jobs"]]
    body = {"content": "b"}
    named = app.submit(item_type="content", op="ingest", payload=body, job_id="nonsense").job_id
    assert [job_id] == [one["job_id"] for one in ask(*command, "--after", named)["jobs"]]
