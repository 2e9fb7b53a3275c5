"""``penstock models``: the embedders, what is missing, and tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import clock
from penstock.app import Penstock
from penstock.catalog.values import TokenUse
from tests.cli.conftest import Run


def test_models_are_listed_with_what_is_missing(
    run: Run, ask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PENSTOCK_MODELS_DIR", str(tmp_path))
    shown = " ".join(run("models", "list").stdout.split())
    assert "endpoint not ready" in shown
    found = {model["name"]: model for model in ask("models", "list")}
    assert not found["minilm"]["usable"]
    assert found["static"]["usable"]
    assert not found["endpoint"]["usable"]
    assert "PENSTOCK_EMBED_ENDPOINT_URL" in found["endpoint"]["missing"]


def test_tokens_are_shown_by_tenant_and_job(run: Run, ask: Callable[..., Any], app: Penstock):
    assert "No tokens" in run("models", "tokens").stdout
    month = clock.format_time(clock.now())[:7]
    uses = [TokenUse("acme", "embedding endpoint", month, "job_1", 1200)]
    app.documents.catalog.add_tokens(uses)
    assert "1,200" in run("models", "tokens").stdout
    assert [1200] == [use["tokens"] for use in ask("models", "tokens")]
    assert [] == ask("models", "tokens", "--tenant", "other")


def test_the_jobs_of_a_large_folder_do_not_fill_the_screen(run: Run, ask: Callable[..., Any], app: Penstock):
    month = clock.format_time(clock.now())[:7]
    service = "embedding endpoint"
    app.documents.catalog.add_tokens(
        [TokenUse("acme", service, month, f"job_{number:02}", number) for number in range(1, 31)]
        + [TokenUse("other", service, month, "job_99", 7)]
    )
    shown = run("models", "tokens").stdout
    assert [line.split() for line in shown.splitlines()[1:3]] == [
        ["acme", "embedding", "endpoint", "465"],
        ["other", "embedding", "endpoint", "7"],
    ]
    assert "job_30" in shown
    assert "job_20" not in shown
    assert "21 more jobs; list them with -n." in shown
    assert "job_01" in run("models", "tokens", "-n", "100").stdout
    assert "job_" not in run("models", "tokens", "-n", "0").stdout
    assert len(ask("models", "tokens")) == 31


@pytest.mark.parametrize(
    ("embedder", "remedy"),
    [
        ("minilm", "penstock models install minilm"),
        ("fastembed", "penstock models install fastembed"),
        ("endpoint", "Set PENSTOCK_EMBED_ENDPOINT_URL"),
    ],
)
def test_an_embedder_that_is_not_ready_is_one_error_with_its_remedy(
    run: Run,
    ask: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    embedder: str,
    remedy: str,
):
    monkeypatch.setenv("PENSTOCK_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("PENSTOCK_EMBEDDER", embedder)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.md").write_text("# Mill")
    shown = run("index", str(tmp_path / "files"), code=3)
    assert f"embedder = '{embedder}'" in shown.stderr
    assert remedy in shown.stderr
    assert "Traceback" not in shown.stderr
    found = {check["subject"]: check for check in ask("doctor", code=1)["checks"]}
    assert "failed" == found["embedder"]["status"]
    assert remedy in found["embedder"]["remedy"]
