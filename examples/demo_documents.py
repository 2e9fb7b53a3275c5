"""Demo of indexing and search: ``make demo``, or ``make demo DIR=~/notes`` for another folder.

The state is in a temporary directory, which is deleted at the end.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def main() -> int:
    given = sys.argv[1] if len(sys.argv) > 1 else ""
    folder = Path(given).expanduser() if given else HERE / "docs"
    query = "what happens when a worker is killed" if not given else folder.name
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as state:
        os.environ["PENSTOCK_STATE"] = state
        steps = [
            ["index", str(folder)],
            ["search", query, "--limit", "3"],
            ["status"],
            ["index", str(folder)],
            ["why", str(next(path for path in sorted(folder.rglob("*")) if path.is_file()))],
        ]
        for step in steps:
            print(f"\n$ penstock {shlex.join(step)}", flush=True)
            code = subprocess.run([sys.executable, "-m", "penstock", *step]).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
