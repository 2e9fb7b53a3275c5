"""Files for contributors name commands, paths and limits that exist."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml"))
PAGES = ["CONTRIBUTING.md", "docs/contributing/release-checklist.md", ".github/pull_request_template.md"]
PATH = re.compile(r"`((?:\.?[a-z_]+/)+[a-z_.-]*|\.?[a-zA-Z_-]+\.(?:md|toml|yaml|txt))`")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def load(name: str) -> Any:
    return yaml.safe_load(read(name))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


def development_tools() -> set[str]:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    return {re.split(r"[\[><=~]", requirement)[0] for requirement in extras["dev"]}


def hooks() -> Iterator[dict[str, Any]]:
    for repository in load(".pre-commit-config.yaml")["repos"]:
        # Only local hooks: nothing is downloaded, and the versions are those of constraints.txt.
        assert "local" == repository["repo"]
        yield from repository["hooks"]


def missing_command(entry: str) -> str | None:
    """What a hook would not find after `make setup`, or None."""
    match entry.split():
        case ["make", target, *_]:
            return None if target in make_targets() else f"make {target}"
        case [".venv/bin/python", "-m", module, *_]:
            return None if (ROOT / module.replace(".", "/")).with_suffix(".py").is_file() else module
        case [command, *_]:
            known = {f".venv/bin/{tool}" for tool in development_tools()}
            return None if command in known else command
    return "an empty entry"


def test_ci_calls_the_script_that_runs_make_check():
    jobs = load(".github/workflows/ci.yml")["jobs"].values()

    assert ".ci/run" in [step.get("run") for job in jobs for step in job["steps"]]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "exec make check" == read(".ci/run").splitlines()[-1]


def test_ci_runs_every_python_version_that_the_package_names():
    (job,) = load(".github/workflows/ci.yml")["jobs"].values()
    classifiers = tomllib.loads(read("pyproject.toml"))["project"]["classifiers"]
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text) for text in classifiers]

    assert [found[1] for found in named if found] == job["strategy"]["matrix"]["python"]


def test_hooks_call_commands_that_exist():
    entries = [hook["entry"] for hook in hooks()]

    assert len(entries) >= 4
    assert [] == [missing for entry in entries if (missing := missing_command(entry))]
    assert {"system"} == {hook["language"] for hook in hooks()}


@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        ("make lint", None),
        ("make nothing", "make nothing"),
        (".venv/bin/ruff check", None),
        (".venv/bin/flake8", ".venv/bin/flake8"),
        (".venv/bin/python -m scripts.decisions", None),
        (".venv/bin/python -m scripts.nothing", "scripts.nothing"),
        ("", "an empty entry"),
    ],
)
def test_a_missing_command_is_found(entry: str, missing: str | None):
    assert missing == missing_command(entry)


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_make_targets_that_exist(page: str):
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", read(page), re.MULTILINE))

    assert named
    assert set() == named - make_targets()


def test_contributing_names_paths_that_exist():
    paths = PATH.findall(read("CONTRIBUTING.md"))

    assert len(paths) >= 8
    assert [] == [path for path in paths if not (ROOT / path).exists()]


def test_contributing_names_the_limits_that_are_checked():
    size = " ".join(read("CONTRIBUTING.md").partition("## Size")[2].partition("\n## ")[0].split())
    ruff = tomllib.loads(read("pyproject.toml"))["tool"]["ruff"]

    assert f"complexity of a function is at most {ruff['lint']['mccabe']['max-complexity']} (ruff)" in size
    assert f"a line has at most {ruff['line-length']} characters in code" in size


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_issue_forms_are_complete(path: Path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    fields = [field for field in form["body"] if field["type"] != "markdown"]

    assert {"name", "description", "body"} <= form.keys()
    assert len(fields) == len({field["id"] for field in fields})
    assert all(field["attributes"]["label"] for field in fields)


def test_workers_of_a_run_collect_tests_of_the_same_names(request: pytest.FixtureRequest):
    """Bytes that are no text may hold the time at which they were made, as those of an archive do."""
    named = [item.callspec.id for item in request.session.items if hasattr(item, "callspec")]

    assert [] == [name for name in named if "\\x1f\\x8b" in name or "PK\\x" in name]
