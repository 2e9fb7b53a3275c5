"""Database access shared by the queue and the catalog.

- ``sqlite_connections``: connections and transactions of one process, and translated errors
- ``sqlite_file``: creation, loss and read-only access of the database file
- ``sqlite_schema``: migration of a SQLite file
- ``postgres_connections``: connection pool, and the clock of the server
- ``postgres_errors``: translation of PostgreSQL errors
- ``postgres_schema``: migration of a PostgreSQL database
- ``schema``: numbered migration scripts, and the names they create
- ``fair_semaphore``: semaphore in order of arrival
"""
