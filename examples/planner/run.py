"""Asks a planner a question and lets a real worker find the answer, in a directory that is removed again.

python -m examples.planner.run
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections import Counter
from pathlib import Path

QUESTION = "How many sacks did each mill grind?"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        # Before the application is imported: it, and its copies in the worker, take their place from here.
        os.environ["PENSTOCK_STATE"] = directory
        os.environ.pop("PENSTOCK_URL", None)
        ask(Path(directory))


def ask(directory: Path) -> None:
    from examples.planner.tasks import agents, app

    agents.fill_the_books()
    agents.write("INSERT INTO planners (planner_id, question) VALUES ('p1', ?)", QUESTION)
    payload = {"user_question": QUESTION, "instruction": "one line for each mill"}
    task_id = app.tasks.enqueue_task("planner", "p1", "execute_initial_planning", payload)
    print(f"asked:    {QUESTION}")
    print(f"queued:   task {task_id} for planner p1")

    began = time.perf_counter()
    app.run_worker(processes=2, until_idle=True)
    print(f"worked:   {time.perf_counter() - began:.1f} s with 2 processes")

    show_tasks(directory / "penstock.db")
    ((answer,),) = agents.read("SELECT answer FROM planners WHERE planner_id = 'p1'")
    print(f"answer:   {answer}")
    assert (
        answer == "Lower ground 35 sacks; Tide ground 17 sacks; Upper ground 21 sacks; Asked was: " + QUESTION
    )
    app.close()


def show_tasks(path: Path) -> None:
    """What happened, read from the queue's own file by anything that speaks SQL."""
    database = sqlite3.connect(path)
    tasks = database.execute(
        "SELECT function_name, entity_id, status, retry_count FROM task_queue ORDER BY created_at, entity_id"
    ).fetchall()
    database.close()
    for function_name, entity_id, status, retries in tasks:
        note = f"   after {retries} retry" if retries else ""
        print(f"          {status:<10} {function_name:<25} {entity_id}{note}")
    names = Counter(function_name for function_name, *_ in tasks)
    assert {status for _, _, status, _ in tasks} == {"COMPLETED"}
    assert names == {
        "execute_initial_planning": 1,
        "execute_task_creation": 1,
        "worker_initialisation": 4,
        "execute_sql_worker": 3,
        "execute_standard_worker": 1,
        # Two workers that finish in the same moment may both find that they were the last.
        "execute_synthesis": max(names["execute_synthesis"], 1),
    }
    assert all(retries == (name == "execute_sql_worker") for name, _, _, retries in tasks)


if __name__ == "__main__":
    main()
