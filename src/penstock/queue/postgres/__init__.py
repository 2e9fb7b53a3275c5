"""The PostgreSQL engine: one server, workers on many hosts.

- ``queue``: the queue protocol on PostgreSQL
- ``rows``: rows of one transaction
- ``pause_rows``: its statements, and rows held back by pauses
- ``limit_rows``: rows with a limit, and the limits
- ``values``: encoding of jobs and arrays
- ``transaction``: one transaction as a pipeline, with retries
- ``claim``: one claim, with its fast path
- ``addition``: the fast path of add
- ``joined_transaction``: add inside a transaction of the caller
- ``listener``: waits for notifications
"""
