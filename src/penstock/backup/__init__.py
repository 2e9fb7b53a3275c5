"""Backups: all rows of a queue and its catalog in one file, and back into any store.

- ``archive``: the file format: parts of rows with checksums, read and written as a stream.
- ``contents_check``: what a backup has to hold, checked before anything is written.
- ``stores``: the rows of a queue and a catalog as parts, and parts put into them.
- ``moves``: all rows from one store to another.
- ``backups``: the use cases: write a backup, rotate backups, check one, restore one.
"""
