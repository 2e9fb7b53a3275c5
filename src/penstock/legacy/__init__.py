"""Imports from other queues.

A source reads rows, a mapping says what a row becomes, and the importer applies it once.

- ``mappings``: rows of other queues, and the jobs that they become
- ``sqlite_source``, ``postgres_source``: rows of tables
- ``redis_source``: lists and hashes of the Redis contract
- ``journal_source``: a journal of job records with its snapshot
- ``importer``: the import of one source, row by row, idempotent; or of all rows of another store of Penstock
"""
