"""The catalog: sources, their generations of pages and chunks, and the durable tasks of indexing.

``protocol``   ``Catalog`` and ``Snapshot``, the contract of every store
``word_reads`` ``WordReads``, the part of a snapshot that reads the keyword index
``values``     what callers give: generations, pages, chunks, tasks, outcomes, removals
``views``      what callers get: sources, documents, progress, hits
``entities``   what extractors find in chunks: entities and relations
``graph``      ``GraphStore``, the contract of every store of entities and relations
``parts``      the parts of a catalog with contracts of their own
``outside_stores``   stores outside the catalog with copies of parts of it, and removals to be done there
``factory``    from a store URL to an open catalog, and the one host of a catalog in a file
``pagination`` long listings, a page at a time, and the cursor of a walk
``path_glob``  globs over paths, the same in every store
``rules``      decisions without a store or a clock
``sql``        the catalog in SQLite and PostgreSQL
"""
