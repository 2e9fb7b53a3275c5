"""``penstock worker`` as a real process: announcement, work and exit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Penstock, config
from penstock.queue.job import Held, Status
from tests.servers.redis import own_server
from tests.servers.stores import DURABLE, FIRST, given_back, others_later, store_url
from tests.signals import hear
from tests.worker.worker_processes import PATIENCE_S, until

APP = """
import os, time
from penstock import Penstock

app = Penstock({url!r}, state_dir={state!r})

@app.function("double")
def double(payload):
    return payload["n"] * 2

@app.function("pid")
async def pid(payload, context):
    context.log.info("told by a job")
    return os.getpid()
@app.handler("content", "ingest", batch=10)
def keep(contexts):
    return [len(contexts) for _ in contexts]

@app.function("endless")
def endless(payload):
    time.sleep(600)

if __name__ == "__main__":
    app.run_worker(until_idle=True)
"""

Start = Callable[..., subprocess.Popen[str]]

SERVING_ANY = pytest.mark.parametrize("url", others_later(FIRST, ["sqlite"]), indirect=True)
"""For what is the command's own, whatever the engine: once on a file, and once on a server."""
LONGER_WAYS = [
    pytest.param(*way, marks=pytest.mark.long)
    for way in (("jsonl", "fork"), ("redis", "fork"), ("postgres", "spawn"))
]


@pytest.fixture(params=others_later(DURABLE, ["sqlite"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield store_url(request.param, tmp_path)
    given_back(tmp_path)


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[Penstock]:
    package = tmp_path / "mypkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text(APP.format(url=url, state=str(tmp_path / "state")))
    settings = config.load({}, url=url, state_dir=tmp_path / "state")
    with Penstock(settings=settings) as opened:
        for name in ("double", "pid", "endless"):
            opened.function(name)(lambda payload: None)
        yield opened


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, program: tuple[str, ...] = ("-m", "penstock")) -> subprocess.Popen[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "AGENT_BRAIN_"))}
        clean["PYTHONPATH"] = str(Path(penstock.__file__).resolve().parents[1])
        process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=tmp_path,
            env=clean,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hear,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert code == process.returncode, (out, err)
    return out, err


@pytest.mark.parametrize(
    ("url", "start_method"),
    # A new process opens its own file or connection; a forked one has inherited what its engine has open.
    [("sqlite", "fork"), ("postgres", "fork"), ("sqlite", "spawn"), *LONGER_WAYS],
    indirect=["url"],
)
def test_it_runs_the_functions_of_an_application_and_says_what_it_serves(
    app: Penstock, start: Start, start_method: str
):
    receipts = app.call_many([{"name": "double", "payload": {"n": n}} for n in range(20)])
    own = app.call("pid")
    options = ("--processes", "2", "--start-method", start_method)
    process = start("worker", "--app", "mypkg.tasks:app", "--until-idle", *options)
    out, err = finished(process)

    served = "documents, function double, function endless, function pid, content/ingest"
    assert out.startswith(f"Serving {served} from ")
    assert out.endswith(" with 2 processes.\n")
    assert [n * 2 for n in range(20)] == [app.result(receipt.job_id) for receipt in receipts]
    assert process.pid != app.result(own.job_id) != os.getpid()
    assert f" {own.job_id}: told by a job" in err


@SERVING_ANY
def test_it_runs_handlers_of_other_jobs_many_at_once(app: Penstock, start: Start):
    notes = [
        app.submit(item_type="content", op="ingest", payload={"content": f"The mill runs {n}."})
        for n in range(10)
    ]
    finished(start("worker", "--app", "mypkg.tasks:app", "--until-idle"))

    assert {10} == {app.result(note.job_id) for note in notes}


@SERVING_ANY
def test_the_name_app_may_be_left_out_and_the_start_be_json(app: Penstock, start: Start, url: str):
    out, _ = finished(start("worker", "--app", "mypkg.tasks", "--until-idle", "--json"))

    assert {
        "serves": ["documents", "function double", "function endless", "function pid", "content/ingest"],
        "store": url,
        "processes": 1,
        "app": "mypkg.tasks",
    } == json.loads(out)


@SERVING_ANY
def test_without_an_application_jobs_are_given_back_with_the_reason(app: Penstock, start: Start, url: str):
    receipt = app.call("double", {"n": 1})
    state = str(app.settings.state_dir)
    out, _ = finished(start("--url", url, "--state", state, "worker", "--until-idle"))
    job = app.job(receipt.job_id)

    assert "Serving documents from" in out
    assert (Status.PENDING, Held.TIME, 0) == (job.status, job.held, job.retry_count)
    assert "no handler for function/run here" in (job.error_message or "")


@SERVING_ANY
@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_stops_it_and_the_job_in_hand_is_given_back_unspent(
    app: Penstock, start: Start, signals: int
):
    receipt = app.call("endless")
    process = start("worker", "--app", "mypkg.tasks:app", "--grace", "0.5" if signals == 1 else "600")
    assert process.stderr is not None
    until(lambda: app.job(receipt.job_id).status is Status.IN_PROGRESS)
    process.send_signal(signal.SIGTERM)
    if signals == 2:  # two that come before the first is taken are one
        while "finishing running jobs" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
    finished(process)
    job = app.job(receipt.job_id)

    assert (Status.PENDING, 0, 0) == (job.status, job.retry_count, job.lost_count)


def test_a_dead_predecessor_is_known_by_any_name_of_the_store(
    app: Penstock, start: Start, url: str, tmp_path: Path
):
    """Jobs of the dead worker are released at once, not at the end of their leases."""
    (tmp_path / "link").symlink_to(tmp_path)
    linked = url.replace(str(tmp_path), f"{tmp_path}/mypkg/../link")
    (tmp_path / "mypkg" / "linked.py").write_text(APP.format(url=linked, state=str(tmp_path / "state")))
    receipt = app.call("endless")
    first = start("worker", "--app", "mypkg.tasks:app")
    until(lambda: app.job(receipt.job_id).status is Status.IN_PROGRESS)
    first.kill()

    start("worker", "--app", "mypkg.linked:app")

    until(lambda: app.job(receipt.job_id).claim_number == 2)


@SERVING_ANY
def test_an_idle_worker_leaves_at_the_first_signal(app: Penstock, start: Start):
    process = start("worker", "--app", "mypkg.tasks:app")
    until(app.queue.workers)
    process.send_signal(signal.SIGINT)

    finished(process)


@SERVING_ANY
def test_a_process_is_replaced_after_as_many_jobs_as_the_setting_says(
    app: Penstock, start: Start, tmp_path: Path
):
    tasks = tmp_path / "mypkg" / "tasks.py"
    tasks.write_text("import os\nos.environ['PENSTOCK_RECYCLE_AFTER_JOBS'] = '1'\n" + tasks.read_text())
    receipts = [app.call("pid") for _ in range(3)]
    finished(start("worker", "--app", "mypkg.tasks:app", "--until-idle"))

    assert 3 == len({app.result(receipt.job_id) for receipt in receipts})


@SERVING_ANY
def test_a_script_may_run_its_own_worker(app: Penstock, start: Start):
    receipt = app.call("double", {"n": 4})
    finished(start(program=("-m", "mypkg.tasks")))

    assert 8 == app.result(receipt.job_id)


def test_what_was_typed_cannot_be_loaded_again_and_says_so(start: Start):
    typed = (
        "from penstock import Penstock; app = Penstock('sqlite:///queue.db', state_dir='.'); app.run_worker()"
    )
    _, err = finished(start(program=("-c", typed)), code=1)

    assert "AppNotFound: this application is not a global of a module" in err


@SERVING_ANY
def test_told_not_to_claim_it_claims_nothing(app: Penstock, start: Start, tmp_path: Path):
    receipt = app.call("double", {"n": 1})
    tasks = tmp_path / "mypkg" / "tasks.py"
    asleep = tasks.read_text().replace(
        "app = Penstock(", "import os\nos.environ['PENSTOCK_QUEUE_ENABLED'] = 'false'\napp = Penstock("
    )
    tasks.write_text(asleep)
    out, _ = finished(start("worker", "--app", "mypkg.tasks:app", "--until-idle"))

    assert "no job is claimed, because queue_enabled is false" in out
    assert Status.PENDING is app.job(receipt.job_id).status


@pytest.fixture
def broken(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "needy.py").write_text("import no_such_module_anywhere")
    (tmp_path / "other.py").write_text("app = 7")
    (tmp_path / "leaving.py").write_text("import sys\n\nsys.exit(5)")
    (tmp_path / "wrong.py").write_text("x = 1\ny = (")
    (tmp_path / "deep.py").write_text("import json\n\njson.loads('{')")
    (tmp_path / "eager.py").write_text(
        "from penstock import Penstock\napp = Penstock('sqlite:///queue.db', state_dir='.')\napp.run_worker()"
    )


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.tasks:app", "there is no module nowhere"),
        ("broken:app", "ZeroDivisionError during the import: division by zero"),
        ("broken:app", "/broken.py, line 1)"),
        ("needy:app", "there is no module no_such_module_anywhere ("),
        ("needy:app", "/needy.py, line 1)"),
        ("leaving:app", "SystemExit during the import: 5 ("),
        ("wrong:app", "/wrong.py, line 2)"),
        ("deep:app", "JSONDecodeError during the import"),
        ("other:app", "expected a Penstock, found int"),
        ("other:missing", "has no 'missing'"),
        ("other:app.deeper", "has no 'app.deeper'"),
        ("", "is not a valid application name"),
        ("../tasks.py", "is not a valid application name"),
        (":app", "is not a valid application name"),
    ],
)
def test_an_application_that_cannot_be_loaded_is_one_line_and_exit_code_3(
    start: Start, name: str, reason: str
):
    _, err = finished(start("worker", "--app", name), code=3)

    assert reason in err
    assert "ERR_APP_NOT_FOUND" in err
    assert 1 == len(err.splitlines())


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("nowhere:app", "Use MODULE:NAME"),
        ("needy:app", "Install it, or `python -c 'import needy'` shows the whole traceback."),
        ("broken:app", "Correct the module; `python -c 'import broken'` shows the whole traceback."),
    ],
)
def test_what_to_do_depends_on_why_it_cannot_be_loaded(start: Start, name: str, remedy: str):
    _, err = finished(start("worker", "--app", name), code=3)

    assert remedy in err


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("arguments", [("-m", "penstock", "worker", "--app", "eager:app"), ("eager.py",)])
def test_a_worker_that_is_started_by_loading_its_application_names_the_guard(
    start: Start, arguments: tuple[str, ...]
):
    process = start(program=arguments)
    assert process.stderr is not None
    said = ""
    while 'if __name__ == "__main__":' not in said:
        said = process.stderr.readline()
        assert said, "it ended without a word about it"


@SERVING_ANY
def test_an_application_with_another_queue_than_the_command_line_is_refused(app: Penstock, start: Start):
    _, err = finished(start("--url", "sqlite:///elsewhere.db", "worker", "--app", "mypkg.tasks"), code=3)

    assert "the application has url = " in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--processes", "0"),
        ("--processes", "many"),
        ("--lanes", "unheard-of"),
        ("--grace", "-1"),
        ("--start-method", "clone"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(start: Start, arguments: Any):
    finished(start("worker", *arguments), code=2)


def test_a_memory_is_not_for_workers(start: Start):
    _, err = finished(start("--url", "memory://", "worker"), code=3)

    assert "memory:// queue exists in one process only" in err


@pytest.mark.parametrize(
    "away", ["postgresql://penstock:secret@127.0.0.1:1/jobs", "redis://:secret@127.0.0.1:1/0"]
)
def test_a_server_that_is_away_is_one_line_and_nothing_is_announced(start: Start, away: str, tmp_path: Path):
    out, err = finished(start("--url", away, "--state", str(tmp_path), "worker"), code=7)

    assert "" == out
    assert 1 == len(err.splitlines())
    assert "Connection refused" in err
    assert "Check that the store is running and reachable, then try again." in err
    assert "secret" not in err


@pytest.mark.parametrize("app_named", [False, True])
def test_a_store_that_is_not_there_yet_is_waited_for_when_asked(
    start: Start, tmp_path: Path, app_named: bool
):
    with own_server(tmp_path / "redis") as server:
        server.kill()
        url, state = f"{server.url}?name=mill", str(tmp_path / "state")
        (tmp_path / "late.py").write_text(APP.format(url=url, state=state))
        where = ("worker", "--app", "late:app") if app_named else ("--url", url, "--state", state, "worker")
        _, err = finished(start(*where, "--until-idle"), 7)
        assert err.startswith("error: ")
        assert 1 == err.count("\n")

        process = start(*where, "--until-idle", "--wait-for-store")
        assert process.stderr is not None
        assert "(ERR_STORE_UNAVAILABLE); waiting for it" in process.stderr.readline()
        server.start()
        out, _ = finished(process)
        assert out.startswith("Serving documents")


def test_a_worker_that_waits_for_its_store_can_be_stopped(start: Start, tmp_path: Path):
    process = start("--url", "redis://localhost:1/0", "--state", str(tmp_path), "worker", "--wait-for-store")
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)

    out, err = finished(process)
    assert ("", True) == (out, "stopped by a signal before the store was reachable" in err)
