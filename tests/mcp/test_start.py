"""The start of the MCP server: bounded by counts, as times depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys

SERVER = """
import gc, json, sys
from penstock.interpreter import WithoutCollections
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
import penstock.assembly
collections.clear()
with WithoutCollections():
    import penstock.mcp.server
print(json.dumps({"collections": len(collections), "on": gc.isenabled(), "modules": sorted(sys.modules)}))
"""
NOT_NEEDED = {
    "numpy",
    "psycopg",
    "redis",
    "tokenizers",
    "onnxruntime",
    "tree_sitter",
    "PIL",
    "pypdfium2",
}


def test_the_server_starts_with_few_modules_and_no_collections():
    done = subprocess.run(
        [sys.executable, "-c", SERVER], capture_output=True, text=True, check=True, timeout=120
    )
    found = json.loads(done.stdout)

    assert found["on"]
    assert 0 == found["collections"]
    assert set() == NOT_NEEDED & set(found["modules"])
    own = [name for name in found["modules"] if name.partition(".")[0] == "penstock"]
    assert len(own) <= 125, len(own)
    assert len(found["modules"]) <= 780, len(found["modules"])
