"""The rules of the queue: pure decisions over the rows of one transaction.

- ``rows``: the rows as the rules use them, candidates of a claim, pauses, and the start of one job
- ``addition``: new jobs, duplicates, backpressure, turns, and dependencies between rows
- ``settlement``: ends of claims and their effects, requeue, cancellation, repair and deletion
- ``held_jobs``: rows held back by a pause or a limit, and their release in batches
"""
