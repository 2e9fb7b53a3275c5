"""The JSONL engine: the memory engine with a journal on disk, for several processes on one host.

- ``queue``: the memory engine with a file lock, replay, compaction and a log for people
- ``journal``: the files, their lock and their lines
"""
