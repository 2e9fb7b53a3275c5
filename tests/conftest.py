"""Shared fixtures: servers, started at the first use, and a temporary state directory."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterator

import pytest

# First, before usearch: usearch carries a C++ library whose locale objects take the place of the system's in
# libraries loaded later; Tesseract then cannot parse its models and ends the process. Only tests load both:
# in the product, pages are recognized in the sandbox.
import tesserocr  # noqa: F401

from tests.servers import redis, run

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
BYTECODE_PLACE = "PYTHONPYCACHEPREFIX"


def pytest_configure(config: pytest.Config) -> None:
    _compile_once(config)
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


def _compile_once(config: pytest.Config) -> None:
    """Keep compiled modules apart where the caller wants none beside the source.

    Each test worker and each of the thousand processes that tests start would compile all it imports.
    """
    if os.environ.pop(NO_BYTECODE, None):
        os.environ.setdefault(BYTECODE_PLACE, str(config.rootpath / ".pytest_cache" / "bytecode"))
        sys.pycache_prefix = os.environ[BYTECODE_PLACE]
        sys.dont_write_bytecode = False


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
