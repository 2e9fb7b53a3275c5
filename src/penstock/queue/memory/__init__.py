"""The memory engine, the reference for the other engines.

- ``queue``: the queue protocol in memory
- ``table``: rows and their indexes
- ``lazy_heap``: ordered rows with lazy deletion, and the orders of rows
"""
