"""Vector search: the published vectors nearest to a query.

- ``protocol``: the interface of a vector search, and the snapshots it reads
- ``cache``: ``VectorCache``, vectors that follow the catalog, in memory or in cache files
- ``cache_directory``: the directory of cache files: names, locks, removal
- ``memory_rows``: vectors in memory, and the best matches
- ``mmap_rows``: vectors in a file that all processes map
- ``ann_index``: an approximate index (usearch) over the rows of such a file
- ``footer``: files with a typed, checksummed footer
"""
