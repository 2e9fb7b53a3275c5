"""The SQLite engine: one file, many processes on one host.

- ``queue``: the queue protocol on SQLite, and one claim
- ``rows``: rows of one transaction, their encoding, and the fast path of plain jobs
"""
