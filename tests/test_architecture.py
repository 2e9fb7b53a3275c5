"""The arrows between modules, and the rules every file keeps.

values ← protocols ← stores, pipeline, worker, service ← assembly ← doors, app. The checks take source text,
so that the tests below can show them wrong code as well as the package's own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from penstock.catalog.rules.phases import LATER_PHASES
from tests.syntax_trees import MODULES, PACKAGE, imports, module_name, names_used, nodes

FILES = sorted(path for suffix in ("py", "sql", "lua") for path in PACKAGE.rglob(f"*.{suffix}"))

# The longest matching prefix counts. A new module without a prefix here has to be added.
GROUPS = {
    # Values and rules: neither a store nor the world outside.
    **dict.fromkeys(["strict_json", "vocabulary"], "rules"),
    **dict.fromkeys(
        [f"queue.{name}" for name in "job limits payloads retry schedules transitions".split()], "rules"
    ),
    **dict.fromkeys(["catalog.graph", "catalog.rules", "catalog.values", "redis_contract.messages"], "rules"),
    "errors": "errors",
    "clock": "clock",
    **dict.fromkeys(
        "config extensions interpreter state_directory store_outage store_url traces".split(), "config"
    ),
    # Contracts, and what keeps them.
    **dict.fromkeys(["queue.protocol", "graph_stores.protocol", "vector_stores.protocol"], "protocols"),
    **dict.fromkeys([f"catalog.{name}" for name in "parts protocol".split()], "protocols"),
    **dict.fromkeys("database queue catalog graph_stores vector_stores".split(), "stores"),
    # Packages with a rule of their own in ALLOWED.
    **{name: name for name in "pipeline handlers worker service client legacy backup".split()},
    **{name: name for name in "http cli mcp redis_contract watch".split()},
    "process_start": "process",
    "assembly": "assembly",
    **dict.fromkeys(
        "app application adapters testing worker.launch redis_contract.contract __init__ __main__".split(),
        "app",
    ),
}
VALUES = {"rules", "errors", "config", "clock"}
BELOW_SERVICE = VALUES | {"protocols", "pipeline", "handlers"}
DOORS = {"http", "cli", "mcp", "redis_contract", "watch"}
ALLOWED = {
    "rules": {"errors"},
    "errors": set(),
    # Trust in a state directory needs a secret.
    "config": {"rules", "errors", "clock"},
    "clock": {"errors"},
    "protocols": VALUES,
    "stores": VALUES | {"protocols"},
    "pipeline": VALUES,
    "handlers": VALUES | {"protocols", "pipeline"},
    "worker": BELOW_SERVICE,
    "service": BELOW_SERVICE,
    "client": VALUES | {"protocols", "service"},
    # Its sources read stores of other programs, and lists of the contract.
    "legacy": VALUES | {"protocols", "service", "stores", "backup", "redis_contract"},
    # Opens stores, also one whose restore was not finished.
    "backup": VALUES | {"protocols", "service", "stores"},
    "process": VALUES,
    **{
        door: VALUES | {"protocols", "service", "client", "process", "assembly", "legacy", "backup"}
        for door in DOORS
    },
    "assembly": set(GROUPS.values()),
    "app": set(GROUPS.values()),
}

IMPURE = frozenset(
    "asyncio fcntl http io logging multiprocessing os pathlib random secrets select shutil signal socket "
    "sqlite3 subprocess tempfile threading time urllib uuid".split()
)
CLOCK_AND_IDS = frozenset(
    "time.time time.time_ns time.localtime time.gmtime datetime.datetime.now datetime.datetime.utcnow "
    "datetime.datetime.today datetime.date.today uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 secrets "
    "os.urandom".split()
)
STOPWATCH = frozenset(["time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns"])
ENVIRONMENT = frozenset(["os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"])
BANNED_NAMES = frozenset("utils util helpers helper common manager misc base core".split())


def group(module: str) -> str | None:
    parts = module.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((GROUPS[prefix] for prefix in prefixes if prefix in GROUPS), None)


def inner(name: str) -> str | None:
    """The module of Penstock behind an imported name; the bare package counts as ``app``."""
    if name.split(".")[0] != "penstock":
        return None
    parts = name.split(".")[1:]
    return ".".join(parts) if parts and group(".".join(parts)) else "__init__"


def wrong_arrows(source: str, module: str, *, package: bool = False) -> list[str]:
    mine = group(module)
    if mine is None:
        return [f"{module}: has no place in GROUPS"]
    found = []
    for line, name in imports(nodes(source), module, package=package):
        target = inner(name)
        if target is not None:
            theirs = group(target)
            if theirs != mine and theirs not in ALLOWED[mine]:
                found.append(f"{module}:{line}: {mine} must not import {theirs} ({name})")
        elif mine == "rules" and name.split(".")[0] in IMPURE and not name.startswith("pathlib.Pure"):
            found.append(f"{module}:{line}: a pure module must not import {name}")
    return found


def uses(source: str, module: str, banned: frozenset[str]) -> list[str]:
    return sorted(
        {
            f"{module}:{line}: {name}"
            for line, name in names_used(nodes(source))
            if name in banned or name.partition(".")[0] in banned
        }
    )


def asks_the_time(source: str, module: str) -> list[str]:
    if module == "clock":
        return []
    may_measure = module.split(".")[0] in ("queue", "database", "worker", "cli")
    return uses(source, module, CLOCK_AND_IDS if may_measure else CLOCK_AND_IDS | STOPWATCH)


def reads_the_environment(source: str, module: str) -> list[str]:
    # interpreter: the PYTHON* variables for child processes. process_guard: compares variables, which
    # functions may have changed, and decides nothing else by them. output: width and colours of the
    # terminal. ocr: sets threads and telemetry of its libraries, which know no other way.
    own = ("config", "interpreter", "worker.process_guard", "cli.output", "pipeline.ocr.engines")
    return [] if module in own else uses(source, module, ENVIRONMENT)


def async_outside_the_edge(source: str, module: str) -> list[str]:
    if module.split(".")[0] in ("http", "mcp") or module.startswith(("client.async_", "handlers.async_run")):
        return []
    return [f"{module}:{n.lineno}: {n.name}" for n in nodes(source) if isinstance(n, ast.AsyncFunctionDef)]


def offenders(check: Callable[[str, str], list[str]]) -> list[str]:
    """Every fault a check finds in the package."""
    return [fault for path in MODULES for fault in check(path.read_text(encoding="utf-8"), module_name(path))]


def test_there_is_something_to_check():
    assert {"config.py", "job.py"} <= {path.name for path in MODULES}


def test_imports_point_one_way():
    sources = [(path.read_text(encoding="utf-8"), module_name(path), path.stem) for path in MODULES]
    found = [wrong_arrows(source, module, package=stem == "__init__") for source, module, stem in sources]
    assert [] == [fault for faults in found for fault in faults]


def test_only_the_clock_asks_the_time_or_makes_ids():
    assert [] == offenders(asks_the_time)


def test_only_config_reads_the_environment():
    assert [] == offenders(reads_the_environment)


def test_async_stays_at_the_edge():
    assert [] == offenders(async_outside_the_edge)


def test_a_later_phase_is_named_by_the_table_and_the_schemas_only():
    """Everything else follows the table, so that a new phase costs few files."""
    named = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if any(phase in path.read_text(encoding="utf-8").lower() for phase in LATER_PHASES)
    }
    schemas = {f"catalog/sql/migrations/{dialect}/0001_catalog.sql" for dialect in ("sqlite", "postgres")}
    assert {"catalog/rules/phases.py", *schemas} == named


def test_no_module_is_a_grab_bag():
    named = [part for path in FILES for part in path.relative_to(PACKAGE).with_suffix("").parts]

    assert [] == [name for name in named if name.strip("_") in BANNED_NAMES]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("queue.job", "from penstock.config import Settings"),
        ("queue.job", "from penstock import clock"),
        ("queue.job", "import os.path"),
        ("queue.retry", "import random"),
        ("queue.payloads", "from pathlib import Path"),
        ("errors", "from penstock.queue.job import Job"),
        ("clock", "from penstock.config import Settings"),
        ("queue.transitions", "from penstock.queue.protocol import Queue"),
        ("queue.protocol", "from penstock.queue.memory.queue import MemoryQueue"),
        ("queue.protocol", "from .memory import MemoryQueue"),
        ("queue.memory", "from penstock.service.jobs import Jobs"),
        ("queue.memory", "from ..worker import child"),
        ("queue.sql.store", "def late():\n    from ... import cli"),
        ("pipeline.plan", "import penstock.catalog.sql.store"),
        ("pipeline.extract.text", "from penstock.queue.protocol import Queue"),
        ("worker.child", "from penstock.service import jobs"),
        ("worker.child", "from penstock.database.factory import open_queue"),
        ("service.jobs", "from penstock.worker.child import run"),
        ("service.jobs", "from penstock.queue.memory.queue import MemoryQueue"),
        ("service.jobs", "from penstock import Penstock"),
        ("cli.queue", "from penstock.database.factory import open_queue"),
        ("cli.queue", "from penstock.http import routes"),
        ("cli.queue", "import penstock"),
        ("cli.main", "from penstock.app import Penstock"),
        ("http.routes", "from penstock.app import Penstock"),
        ("somewhere.new", "import json"),
    ],
)
def test_a_wrong_arrow_is_seen(module: str, source: str):
    assert wrong_arrows(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "queue.transitions",
            "from penstock.queue import retry\nfrom penstock.queue.job import Job",
        ),
        ("queue.payloads", "from pathlib import PurePosixPath\nfrom penstock.errors import InvalidPayload"),
        ("queue.memory", "from .protocol import Queue\nfrom penstock import clock, errors"),
        ("queue.sql.store", "from ..protocol import Queue\nfrom penstock.queue.sql import queries"),
        ("service.jobs", "from penstock.queue.protocol import Queue"),
        ("cli.queue", "from penstock.service.jobs import Jobs\nfrom penstock.cli import tables"),
        ("cli.main", "from penstock.assembly import Assembly"),
        ("app", "from penstock.database.factory import open_queue\nfrom penstock.service.jobs import Jobs"),
    ],
)
def test_a_right_arrow_is_let_through(module: str, source: str):
    assert [] == wrong_arrows(source, module)


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nt.time_ns()",
        "from time import time\ntime()",
        "from datetime import datetime\nfield(default_factory=datetime.now)",
        "import datetime as dt\ndt.datetime.now(dt.UTC)",
        "from datetime import date\ndate.today()",
        "import uuid\nuuid.uuid4()",
        "from secrets import token_hex\ntoken_hex(4)",
        "import secrets\nsecrets.token_hex(4)",
        "import os\nos.urandom(8)",
    ],
)
def test_asking_the_time_is_seen(source: str):
    assert asks_the_time(source, "queue.memory")
    assert [] == asks_the_time(source, "clock")


def test_a_stopwatch_is_for_waiting_only():
    source = "import time\ntime.monotonic()"

    assert [] == asks_the_time(source, "queue.file_watch")
    assert asks_the_time(source, "service.jobs")


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['HOME']",
        "import os\nos.environ.get('HOME')",
        "from os import environ as e\ne['HOME']",
        "import os\nos.getenv('HOME')",
    ],
)
def test_reading_the_environment_is_seen(source: str):
    assert reads_the_environment(source, "cli.main")
    assert [] == reads_the_environment(source, "config")
