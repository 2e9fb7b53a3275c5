"""The JSONL engine: the memory engine with a journal on disk, for several processes on one host.

- ``queue``: the memory engine with a file lock, replay and compaction
- ``journal``: the files and their lock
- ``records``: lines of the journal, and a table that records its changes
- ``snapshot``: the file with the whole state
- ``audit_log``: one line per transaction for people
"""
