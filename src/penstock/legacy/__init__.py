"""Imports from other queues.

A source reads rows, a mapping says what a row becomes, and the importer applies it once.

- ``rows``: neutral rows, what they become, and the values of their columns
- ``queue_mappings``: the unified queue, its five predecessors, and tasks of functions
- ``document_mappings``: tables of documents, pages and chunks
- ``message_mappings``: messages and status hashes in Redis, and job records in a journal
- ``sqlite_source``, ``postgres_source``: rows of tables
- ``redis_source``: lists and hashes of the Redis contract
- ``journal_source``: a journal of job records with its snapshot
- ``kinds``: the kinds of imports, each with its sources and its mapping
- ``row_builder``: the job that a row becomes
- ``own_store``: all rows of another store of Penstock
- ``import_report``: options and report of an import
- ``importer``: the import of one source, row by row, idempotent
"""
