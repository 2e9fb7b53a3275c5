"""SQL of the queue, shared by the SQLite and PostgreSQL engines.

- ``statements``: loads the statements and schema scripts, and builds those of ``find`` and ``count``
- ``queries/``: statements by name; ``both/`` for both dialects, the other folders for one
- ``migrations/``: numbered schema scripts of each dialect
"""
