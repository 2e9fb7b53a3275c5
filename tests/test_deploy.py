"""The files in ``deploy``: settings, commands, options and extras that they name exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
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
    extras = re.findall(r"/src\[([a-z0-9,]+)\]", text)[0].split(",")
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


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_settings_and_fields_in_the_guides_exist(guide: Path):
    text = guide.read_text()

    assert set(re.findall(r"PENSTOCK_[A-Z_]+", text)) <= KNOWN
    for name in re.findall(r"`deploy/([\w.-]+)`", text):
        assert name == ".env" or (DEPLOY / name).is_file(), name
