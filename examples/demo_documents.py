"""Demo of indexing and search: ``make demo``, or ``make demo DIR=~/notes`` for another folder.

The state is in a temporary directory, which is deleted at the end. Files that cannot be read do not end the
demo: ``penstock why`` lists them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
QUERY = "what happens when a worker is killed"
TITLE_WORDS = range(2, 9)
"""Numbers of words that make a title a query."""


def main() -> int:
    given = sys.argv[1] if len(sys.argv) > 1 else ""
    folder = Path(given).expanduser().resolve() if given else HERE / "docs"
    if not folder.is_dir():
        fault = "is not a folder" if folder.exists() else "does not exist"
        print(f"{folder} {fault}. Name another one: make demo DIR=/path/to/folder", file=sys.stderr)
        return 1
    os.chdir(HERE)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as state:
        os.environ["PENSTOCK_STATE"] = state
        show(str(folder) if given else folder.name, QUERY if not given else None)
    return 0


def show(folder: str, query: str | None) -> None:
    failed = run("index", folder) != 0
    documents = indexed()
    if not documents:
        print(f"\nNo file in {folder} was indexed, so there is nothing to search.")
        return
    run("search", *(query or title_query(documents)).split(), "--limit", "3", "--explain")
    run("status")
    if failed:
        print("\nSome files cannot be read. The next command lists them and says why.")
    run("why", folder)
    print("\nA second run reads only what has changed.")
    run("index", folder)


def run(*command: str) -> int:
    print(f"\n$ penstock {shlex.join(command)}", flush=True)
    return subprocess.run([sys.executable, "-m", "penstock", *command], check=False).returncode


def indexed() -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "penstock", "documents", "list", "--json"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    documents: list[dict[str, Any]] = json.loads(answer)["documents"]
    return documents


def title_query(documents: list[dict[str, Any]]) -> str:
    """Make a query of the title with the most words, else of the first file's name."""
    titles = [re.findall(r"[^\W_]+", document["title"]) for document in documents]
    name = re.findall(r"[^\W_]+", Path(documents[0]["path"]).stem)
    good = sorted((title for title in titles if len(title) in TITLE_WORDS), key=len)
    return " ".join(good[-1] if good else name) or "file"


if __name__ == "__main__":
    sys.exit(main())
