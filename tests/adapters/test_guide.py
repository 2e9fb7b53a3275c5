"""The applications of the guide to adapters run, with a worker that the guide's command starts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Penstock

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "adapters.md"
FILE = re.compile(r"^<!-- file: (\S+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

ASK_FASTAPI = """
import json
from fastapi.testclient import TestClient
from web import app

with TestClient(app) as client:
    job = client.post("/people", json={"name": "Ada"}).json()["job_id"]
    print(json.dumps([client.get(f"/jobs/{job}").json()["status"], client.get("/jobs/job_none").status_code]))
"""

ASK_DJANGO = """
import json, sys
import django
from django.conf import settings
from django.urls import path

sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}
settings.configure(ROOT_URLCONF=__name__, DATABASES={"default": sqlite}, ALLOWED_HOSTS=["testserver"])
django.setup()
from django.test import Client
import views

urlpatterns = [path("orders/<int:number>", views.order)]
answers = [Client().post("/orders/7").status_code for _ in range(2)]
print(json.dumps([answers, len(views.queue.jobs())]))
"""


def section(title: str) -> str:
    found = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", GUIDE.read_text(encoding="utf-8"), re.M | re.DOTALL)
    assert found
    return found[1]


def written(title: str, folder: Path) -> Path:
    """Write the files of a section."""
    for name, text in FILE.findall(section(title)):
        (folder / name).write_text(text)
    return folder


def answer(folder: Path, code: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def run_worker(folder: Path) -> None:
    """Run the command of the guide until the queue is empty."""
    assert "penstock worker --app tasks:queue" in GUIDE.read_text(encoding="utf-8")
    command = [sys.executable, "-m", "penstock", "worker", "--app", "tasks:queue", "--until-idle"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr


@pytest.mark.parametrize(
    ("title", "code", "answers", "result"),
    [
        ("FastAPI", ASK_FASTAPI, ["pending", 404], "Welcome, Ada"),
        # The key makes the second order of one number the same job.
        ("Django", ASK_DJANGO, [[202, 202], 1], "Invoice 7 sent"),
    ],
)
def test_a_web_application_calls_functions(
    title: str, code: str, answers: object, result: str, tmp_path: Path
) -> None:
    folder = written(title, tmp_path)
    assert answers == answer(folder, code)
    run_worker(folder)
    with Penstock() as queue:
        assert [result] == [job.result for job in queue.jobs()]


@pytest.mark.parametrize("title", ["LangChain", "LlamaIndex"])
def test_the_examples_run(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = EXAMPLE.findall(section(title))
    with Penstock() as app, app.worker_thread():
        app.wait(app.documents.note("The mill takes in water by a sluice.", collection="handbook").job_id)
    for example in examples:
        exec(compile(example, GUIDE.name, "exec"), {})  # noqa: S102 - our own page
    assert len(examples) == 1
    assert ("sluice" if title == "LangChain" else "") in capsys.readouterr().out
