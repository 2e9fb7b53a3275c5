"""Run the planner example: submit a question, run a worker, print the answer.

python -m examples.planner.run        # queue in a temporary directory
python -m examples.planner.run URL    # queue on a server, such as postgresql://… or redis://…
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter

from penstock import Penstock

QUESTION = "How many sacks did each mill grind?"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        # Set before the import: the application and the worker's children read the environment then.
        os.environ["PENSTOCK_STATE"] = directory
        os.environ["PENSTOCK_URL"] = sys.argv[1] if len(sys.argv) > 1 else ""
        ask()


def ask() -> None:
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

    show_tasks(app, since=task_id)
    ((answer,),) = agents.read("SELECT answer FROM planners WHERE planner_id = 'p1'")
    print(f"answer:   {answer}")
    assert (
        answer == "Lower ground 35 sacks; Tide ground 17 sacks; Upper ground 21 sacks; Asked was: " + QUESTION
    )
    app.close()


def show_tasks(app: Penstock, since: str) -> None:
    """Print all tasks of this run. In SQLite and PostgreSQL, the view task_queue has the same rows."""
    began = app.job(since).created_at
    # A server may have older tasks.
    ids = [job.queue_id for job in app.jobs(item_type="function", limit=100) if job.created_at >= began]
    tasks = sorted(map(app.tasks.get_task, ids), key=lambda task: (task["created_at"], task["entity_id"]))
    for task in tasks:
        note = f"   after {task['retry_count']} retry" if task["retry_count"] else ""
        print(f"          {task['status']:<10} {task['function_name']:<25} {task['entity_id']}{note}")
    names = Counter(task["function_name"] for task in tasks)
    assert {task["status"] for task in tasks} == {"COMPLETED"}
    assert names == {
        "execute_initial_planning": 1,
        "execute_task_creation": 1,
        "worker_initialisation": 4,
        "execute_sql_worker": 3,
        "execute_standard_worker": 1,
        # Two workers that finish at the same time may both see that no result is missing.
        "execute_synthesis": max(names["execute_synthesis"], 1),
    }
    assert all(task["retry_count"] == (task["function_name"] == "execute_sql_worker") for task in tasks)


if __name__ == "__main__":
    main()
