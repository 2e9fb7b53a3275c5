"""Finds the test corpus, which is not part of this repository; without it its tests are not collected."""

from __future__ import annotations

import os
from pathlib import Path

CORPUS = Path(
    os.environ.get("PENSTOCK_TEST_CORPUS") or Path(__file__).resolve().parents[2].parent / "shared" / "corpus"
)

collect_ignore = [] if (CORPUS / "MANIFEST.jsonl").is_file() else ["test_corpus.py"]
