"""The files in ``deploy``: settings, commands, options and extras that they name exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config import SETTINGS
from tests.test_commands_in_docs import unknown

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
KNOWN = {setting.env for setting in SETTINGS}
GUIDES = [ROOT / "docs/guides/deploy.md", ROOT / "docs/guides/operations.md"]
PLAIN_IMAGE = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?(:[\w.-]+)?")


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def own() -> Iterator[dict[str, Any]]:
    return (service for service in services().values() if service["image"] == "penstock")


def test_compose_has_a_server_two_workers_and_their_stores():
    found = services()

    assert {"server", "worker-1", "worker-2", "postgres", "qdrant", "neo4j"} == set(found)
    assert all(PLAIN_IMAGE.fullmatch(service["image"]) for service in found.values())
    assert [["serve"], ["worker"], ["worker"]] == [service["command"][:1] for service in own()]


def test_commands_and_settings_of_compose_exist():
    for service in own():
        assert unknown(service["command"]) is None, service["command"]
        assert set(service["environment"]) <= KNOWN
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()


def test_volumes_of_compose_are_declared_and_no_state_is_shared():
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    mounts = [
        mount.rsplit(":", 2 if mount.endswith(":ro") else 1)[:2]
        for service in own()
        for mount in service["volumes"]
    ]
    named = {source for source, _ in mounts if "/" not in source and "$" not in source}
    states = [source for source, target in mounts if target == "/var/lib/penstock"]

    assert named <= set(document["volumes"])
    assert len(states) == 3 == len(set(states))


def test_the_image_has_extras_and_a_command_that_exist():
    text = (DEPLOY / "Dockerfile").read_text()
    extras = re.findall(r"\.whl\)\[([a-z0-9,]+)\]", text)[0].split(",")
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(extras) <= set(project["optional-dependencies"])
    assert unknown(json.loads(command)) is None
    assert set(re.findall(r"PENSTOCK_\w+", text)) <= KNOWN
    # Stores of the compose file need their drivers.
    assert {"serve", "postgres", "qdrant", "neo4j"} <= set(extras)


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("*.service")), ids=lambda path: path.name)
def test_the_command_of_a_unit_exists(unit: Path):
    (command,) = re.findall(r"^ExecStart=(\S+/penstock .+)$", unit.read_text(), re.MULTILINE)

    assert unknown(shlex.split(command)[1:]) is None
    assert f"deploy/{unit.name}" in GUIDES[0].read_text()


UNITS = sorted(DEPLOY.glob("*.service"))
CONFINEMENT = "NoNewPrivileges PrivateDevices PrivateTmp PrivateUsers ProtectHome RestrictNamespaces".split()
OF_PARSERS = {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp"}
MOST_EXPOSED = 2.0
"""On the scale of `systemd-analyze security`, where 10 is everything."""


def options(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_needs_no_directory_that_it_does_not_make(unit: Path):
    found = options(unit)

    assert ["%S/penstock"] == found["WorkingDirectory"]
    assert ["penstock"] == found["StateDirectory"] == found["User"]
    assert ["0700"] == found["StateDirectoryMode"]
    assert ["PENSTOCK_STATE=%S/penstock"] == found["Environment"]
    assert found["EnvironmentFile"][0] in GUIDES[0].read_text()


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_is_confined_and_lets_parsers_confine_themselves(unit: Path):
    found = options(unit)
    allowed = " ".join(found["SystemCallFilter"]).split()

    assert {name: ["true"] for name in CONFINEMENT} == {name: found[name] for name in CONFINEMENT}
    assert [""] == found["CapabilityBoundingSet"]
    assert ["strict"] == found["ProtectSystem"]
    assert {"@system-service", "~@privileged", *OF_PARSERS} == set(allowed)
    # An earlier line would be undone by the one that takes privileged calls away.
    assert OF_PARSERS == set(found["SystemCallFilter"][-1].split())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on this machine")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_little_that_a_unit_leaves_open(unit: Path):
    asked = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)

    (exposed,) = re.findall(r"exposure level for \S+: ([\d.]+)", ran.stdout)
    assert float(exposed) <= MOST_EXPOSED, ran.stdout


# The image.


def ignored(path: str) -> bool:
    """What Docker keeps out of a build: the last line of .dockerignore that matches decides."""
    verdict = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").strip("/")
        if pattern and not pattern.startswith("#") and _matches(pattern, path):
            verdict = not line.startswith("!")
    return verdict


def _matches(pattern: str, path: str) -> bool:
    """A pattern covers a path and all below it; ``**`` stands for any number of folders, ``*`` for a name."""
    text = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return re.fullmatch(f"{text}(?:/.*)?", path) is not None


def copied() -> list[str]:
    """Names that the Dockerfile copies out of the checkout."""
    lines = re.findall(r"^(?:COPY|ADD) (?!--from)(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    return [name for line in lines for name in line.split()[:-1]]


def context(root: Path) -> list[str]:
    """Files that end up in a layer of the image."""
    found = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    return [
        path
        for path in found
        if not ignored(path) and any(_matches(name.rstrip("/"), path) for name in copied())
    ]


def test_no_secret_and_no_state_is_copied_into_the_image(tmp_path: Path):
    secrets = (
        "deploy/.env .env .git/config .penstock/keys.json src/penstock/.env src/penstock/.env.local "
        "src/penstock/.penstock/penstock.db src/.env .venv/pyvenv.cfg deploy/compose.override.yaml id_rsa"
    ).split()
    for name in (*secrets, "src/penstock/app.py", "src/penstock/queue/sql/queries/both/add.sql"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert ["src/penstock/app.py", "src/penstock/queue/sql/queries/both/add.sql"] == sorted(context(tmp_path))
    assert not {".", "./"} & set(copied())


def test_git_ignores_the_file_with_the_passwords():
    ran = subprocess.run(["git", "check-ignore", "deploy/.env"], cwd=ROOT, capture_output=True, check=False)
    if ran.returncode == 128:
        pytest.skip("not a git checkout")

    assert 0 == ran.returncode


def test_all_that_the_dockerfile_copies_exists_and_is_let_in():
    for name in copied():
        assert (ROOT / name).exists(), name
        assert not ignored(name), name


@pytest.mark.long
def test_the_package_is_built_from_what_is_copied(tmp_path: Path):
    source = tmp_path / "source"
    for name in context(ROOT):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    ran = subprocess.run([*pip, "-w", tmp_path, source], capture_output=True, text=True, check=False)

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    (wheel,) = tmp_path.glob("penstock-*.whl")
    with zipfile.ZipFile(wheel) as built:
        names = set(built.namelist())
    assert {"penstock/app.py", "penstock/queue/sql/queries/both/add.sql", "penstock/py.typed"} <= names


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_settings_and_fields_in_the_guides_exist(guide: Path):
    text = guide.read_text()

    assert set(re.findall(r"PENSTOCK_[A-Z_]+", text)) <= KNOWN
    for name in re.findall(r"`deploy/([\w.-]+)`", text):
        assert name == ".env" or (DEPLOY / name).is_file(), name
