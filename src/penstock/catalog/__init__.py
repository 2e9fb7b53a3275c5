"""The catalog: sources, their generations of pages and chunks, and the durable tasks of indexing.

``protocol``   ``Catalog`` and ``Snapshot``, the contract of every store; long listings, and globs over paths
``parts``      the parts of a catalog with contracts of their own: outside stores, imports, transfer, projects
``values``     what callers give and get: generations, pages, chunks, tasks; sources, documents, hits
``graph``      entities and relations found in chunks, and ``GraphStore``, the contract of their stores
``factory``    from a store URL to an open catalog, and the one host of a catalog in a file
``rules``      decisions without a store or a clock
``sql``        the catalog in SQLite and PostgreSQL
"""
