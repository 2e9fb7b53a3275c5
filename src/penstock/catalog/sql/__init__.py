"""The catalog over named SQL statements, in SQLite and PostgreSQL.

Statements stand in ``queries/both`` (one text for both stores), ``queries/sqlite`` and ``queries/postgres``;
the schemas in ``migrations``.

``statements``        the loader of SQL files, and ``Statements``, the seam between rules and store
``row_types``         columns, parameters and decoders derived from record classes
``read_records``      rows returned by statements
``written_records``, ``ledger_record``   rows written by statements
``row_templates``     columns that new rows of a batch have in common
``sqlite``, ``postgres``, ``postgres_rows``   the two stores
``catalog``           ``SqlCatalog``: the protocol's methods, each one transaction
``snapshot``, ``search``   read-only views
``generation_store``, ``large_generations``, ``page_rows``, ``chunks``, ``spaces``   writing generations
``families``          sources of several branches that share texts
``generations``       adopting, dropping and publishing generations; the history of sources
``task_claims``, ``task_outcomes``, ``retry``, ``rollup``   tasks
``removals``, ``tombstones``   deletes, renames and announced walks
``graph``, ``graph_rows``, ``graph_texts``   entities and relations found in texts, and what a copy needs
``outside_stores``    attached stores, and texts to be removed from them
``outbox``, ``repair``, ``ledger``   clean-up, repair, and records beside the documents
"""
