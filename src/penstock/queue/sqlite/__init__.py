"""The SQLite engine: one file, many processes on one host.

- ``queue``: the queue protocol on SQLite
- ``rows``: rows of one transaction
- ``values``: encoding of jobs
- ``claim``: one claim
- ``places``: positions of jobs
- ``backlog``: bounds of the pending jobs, instead of a count at each addition
"""
