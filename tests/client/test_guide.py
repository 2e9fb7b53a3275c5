"""The examples of the guide to clients run against a live server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncClient, Client
from tests.client.conftest import Indexed

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "client.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_examples_run(indexed: Indexed, capsys: pytest.CaptureFixture[str]):
    names: dict[str, Any] = {}
    for example in EXAMPLES:
        code = example.replace("http://127.0.0.1:8765", indexed.server.url)
        exec(compile(code, GUIDE.name, "exec"), names)  # noqa: S102 - our own page
    said = capsys.readouterr().out

    assert 3 == len(EXAMPLES)
    assert str(indexed.folder / "mill.md") in said
    assert "The gate is closed at night. True\nend\n" in said
    assert "ERR_PATH_NOT_FOUND" in said


def test_the_table_has_every_method_of_both_clients():
    table = GUIDE.read_text(encoding="utf-8").partition("| method |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`(\w+)`", table))
    methods = {name for name in vars(Client) if not name.startswith("_")} - {"close"}

    assert methods == listed
    assert methods == {name for name in vars(AsyncClient) if not name.startswith("_")} - {"close"}
