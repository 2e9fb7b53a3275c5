"""Notes on generations and jobs by which the worker later decides what becomes of a job."""

from __future__ import annotations

from penstock.catalog.rules.publication import UNFINISHED

EMBEDDED = "embedded"
"""In the progress of a job that waits for its document: chunks that the job has embedded itself."""
CHANGED = "the file changed while it was read"
OTHER_MODEL = "the model changed while it was embedded"
RESTART_NOTES = frozenset({CHANGED, OTHER_MODEL, UNFINISHED})
"""Notes of dropped generations whose jobs start again."""
