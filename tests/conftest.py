"""Shared fixtures: servers, started at the first use, and a temporary state directory."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

# First, before usearch: usearch carries a C++ library whose locale objects take the place of the system's in
# libraries loaded later; Tesseract then cannot parse its models and ends the process. Only tests load both:
# in the product, pages are recognized in the sandbox.
import tesserocr  # noqa: F401
from _pytest.assertion import rewrite

from tests.servers import redis, run

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
"""Parent of the temporary directories of pytest; without it, that of the machine."""
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 6 << 30
"""A file system in memory, and the space that a run needs there: it fills about 1.5 GB."""


def pytest_configure(config: pytest.Config) -> None:
    _keep_bytecode()
    _use_memory()
    _set_up_hypothesis()
    run.begin(config)
    # Thousands of tests are made and none is dropped: to look for garbage among them is a fifth of the work.
    gc.disable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes that are no text by their argument.

    Archives that tests make hold the time, and the workers of a run must collect the same names.
    """
    if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()):
        return argname
    return None


def pytest_unconfigure(config: pytest.Config) -> None:
    run.end(config)


def pytest_collection_finish() -> None:
    """Keep what was collected out of each later search for garbage, as it stays to the end."""
    gc.freeze()
    gc.enable()


def _keep_bytecode() -> None:
    """Write compiled modules even where the environment says not to, as containers often do.

    Each test worker and each of the thousand processes that tests start would compile all it imports.
    """
    os.environ.pop(NO_BYTECODE, None)
    sys.dont_write_bytecode = False


def _use_memory() -> None:
    """Keep temporary files in memory where there is room, unless a place is given.

    Thousands of stores sync each transaction: on a disk, the tests of stores wait half of their time for it.
    `make test-long` runs on the disk.
    """
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        os.environ.setdefault(TEMPORARY, str(MEMORY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let the workers of a run divide the compilation of the test modules, the longest part of a first run.

    Each would compile all modules otherwise, at the same time and in the same order as the others.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        for path in _modules(session.config)[number::workers]:
            _compile(path, session.config)


def _modules(config: pytest.Config) -> list[Path]:
    """Return the modules whose assertions pytest rewrites: tests, and all of a package that has a plugin."""
    asked = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    tests = {path for each in asked for name in ("test_*.py", "conftest.py") for path in each.rglob(name)}
    return sorted(tests | set((config.rootpath / "src").rglob("*.py")))


def _compile(path: Path, config: pytest.Config) -> None:
    """Write the module as the import hook of pytest does. A module that has an error is left to the hook."""
    target = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, target) is not None or not rewrite.try_makedirs(target.parent):
        return
    with suppress(OSError, SyntaxError, ValueError):
        stat, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, target)


def _set_up_hypothesis() -> None:
    # Only here: pytest rewrites all its modules at the import, and what it compiled is kept from now on.
    import hypothesis

    # On a busy machine inputs are made slowly, which is no fault of a test.
    patient = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("penstock", deadline=None, suppress_health_check=patient)
    hypothesis.settings.load_profile("penstock")


_NUMBER = itertools.count()


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary state directory, never the user's."""
    place = tmp_path_factory.getbasetemp() / f"user-{next(_NUMBER)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    # For settings that are read from no environment at all.
    monkeypatch.setenv("HOME", str(place))


@pytest.fixture(autouse=True)
def _cleaned_servers() -> Iterator[None]:
    yield
    redis.forget_queues()
