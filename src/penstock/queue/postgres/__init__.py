"""The PostgreSQL engine: one server, workers on many hosts.

- ``queue``: the queue protocol on PostgreSQL, jobs in a transaction of the caller, and the listener
- ``rows``: rows of one transaction, their encoding, and the transaction as a pipeline with retries
- ``fast_paths``: additions, claims and exchanges of plain jobs in few round trips
"""
