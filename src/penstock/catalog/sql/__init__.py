"""The catalog over named SQL statements, in SQLite and PostgreSQL.

Statements stand in ``queries/both`` (one text for both stores), ``queries/sqlite`` and ``queries/postgres``;
the schemas in ``migrations``. Records of rows stand in the module that gives them to statements.

``statements``        the loader of SQL files, columns of records, and ``Statements``, the seam to the store
``sqlite``, ``postgres``   the two stores
``transfer``          all rows in a form common to both
``catalog``           ``SqlCatalog``: the protocol's methods, each one transaction
``snapshot``, ``search``   read-only views
``store``, ``chunks``   writing generations, whole or in parts; families, and vector spaces
``generations``       adopting, dropping and publishing generations; the history of sources; requested deletes
``tasks``             claims, outcomes and retries of tasks, and their documents brought up to them
``removals``          deletes, renames, the outbox and repair
``graph``             entities and relations found in texts, and what a copy needs
``outside_stores``    attached stores, and texts to be removed from them
``ledger``            records beside the documents: unindexed paths, tokens, imported rows, projects
"""
