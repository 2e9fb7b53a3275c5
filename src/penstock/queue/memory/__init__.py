"""The memory engine, the reference for the other engines.

- ``queue``: the queue protocol in memory
- ``table``: rows and their indexes
"""
