"""The memory engine, the reference for the other engines.

- ``queue``: the queue protocol in memory
- ``table``: rows and their indexes
- ``batch_changes``: changes of a whole batch of rows
- ``claimable_rows``: claimable rows in claim order
- ``held_rows``: rows held for others or for limits, and the turns of tenants
- ``family_rows``: children and trees
- ``lazy_heap``: ordered rows with lazy deletion, and the orders of rows
"""
