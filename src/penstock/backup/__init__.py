"""Backups: all rows of a queue and its catalog in one file, and back into any store.

- ``archive``: the file format: parts of rows with checksums, read and written as a stream.
- ``backups``: write a backup, rotate backups, check one, restore one; and moves from one store to another.
"""
