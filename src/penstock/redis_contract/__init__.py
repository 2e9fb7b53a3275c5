"""The Redis contract: producers push messages into lists and read job status from hashes.

A gateway connects one Redis server with one queue of any engine. The modules:

- ``gateway``: heartbeats, takeover from dead gateways, and the intake: messages become jobs, or are refused
- ``mirror``: jobs are written to their status hashes, and files are moved when a job ends
- ``reindex_series``: what messages with ``reindex`` replace, and when the rest is removed
- ``messages``: messages, error reports, the fields of a status hash, health
- ``rags``: the RAG configuration file, and file moves between ``incoming``, ``processed`` and ``failed``
- ``lists``: Redis keys, and all Redis access of a gateway; the Lua scripts are in ``scripts/``
- ``contract``: the producers' side: submit a file, read a status, check health
"""
