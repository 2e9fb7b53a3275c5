"""``python -m scripts.rerun``: run the failed tests of the last run once more, one at a time.

A failure beside other tests on a busy machine may be due to the machine; one that repeats alone is not. CI
uses this after a run with few failures. A test that passes then is listed as unsteady.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 10
"""Failures up to which a run is repeated: more of them have one cause."""


def main(arguments: list[str]) -> int:
    """Run the failed tests again; ``arguments`` are pytest's."""
    failed = list(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} failed tests are not run again (1 to {MOST} are)", file=sys.stderr)
        return 1
    print(f"Running {len(failed)} failed tests again, alone", flush=True)
    # The expression of the default selects tests by their length; here they are named.
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "", *arguments, *failed], check=False
    )
    if again.returncode:
        return 1
    print("Failed in the whole run, passed alone (unsteady, to be mended):")
    print("\n".join(f"  {name}" for name in failed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
