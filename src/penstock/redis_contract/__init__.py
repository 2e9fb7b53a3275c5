"""The Redis contract: messages in lists, status in hashes. A gateway stands between them and any queue.

``message`` and ``rags`` say what may be asked, ``lists`` speaks to Redis, ``intake`` turns messages into
jobs, ``refusal`` describes those that cannot become one, ``mirror`` turns jobs into hashes, ``inbox`` moves
files, ``gateway`` runs all of it; ``contract`` is the producers' side.
"""
