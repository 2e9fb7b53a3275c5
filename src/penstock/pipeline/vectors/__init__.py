"""Vector search: the published vectors nearest to a query.

- ``protocol``: the interface of a vector search, and the snapshots it reads
- ``cache``: ``VectorCache``, vectors that follow the catalog, in memory or in cache files
- ``nearest``: vectors as rows in memory and in mapped files, an approximate index over them, the best scores
- ``directory``: the directory of cache files: names, locks, removal
- ``footer``: files with a typed, checksummed footer
"""
