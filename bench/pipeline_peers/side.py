"""``python -m bench.pipeline_peers.side MODULE index|stored FOLDER STATE``: one command of one side."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    module, verb, folder, state = sys.argv[1:]
    side = importlib.import_module(f"bench.pipeline_peers.sides.{module}")
    answer = getattr(side, verb)(Path(folder), Path(state))
    if answer is not None:
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
