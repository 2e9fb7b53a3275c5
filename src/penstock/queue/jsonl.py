"""The reference engine made durable: a journal of what changed, read by every process that uses it.

Each call takes the file lock, applies what others appended, runs, and appends one line of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path

import msgspec

from penstock import clock
from penstock.errors import SchemaMismatch, StateDamaged, StoreError
from penstock.job import ENDED, WorkerReport
from penstock.queue import forking, records
from penstock.queue.audit import Audit
from penstock.queue.doorbell import Doorbell
from penstock.queue.journal import Journal
from penstock.queue.memory import MemoryQueue
from penstock.queue.snapshot import read_snapshot, snapshot_chunks
