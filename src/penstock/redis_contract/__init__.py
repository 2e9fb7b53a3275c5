"""The Redis contract: producers push messages into lists and read job status from hashes.

A gateway connects one Redis server with one queue of any engine. The modules:

- ``gateway``: the process loop; heartbeats, and takeover from dead gateways
- ``intake``: messages become jobs
- ``mirror``: jobs are written to their status hashes, and files are moved when a job ends
- ``reindex_series``: what messages with ``reindex`` replace, and when the rest is removed
- ``refusal``: the dead letter and error record of a message that cannot become a job
- ``tenant_erasure``: removes hashes and dead letters of deleted tenants
- ``message``: the fields of a message and their validation
- ``rags``: the RAG configuration file
- ``inbox``: file moves between ``incoming``, ``processed`` and ``failed``
- ``fields``: the fields of a status hash
- ``error_report``: error types, codes and suggestions of the contract
- ``keys``: Redis keys, priorities and the order of the lists
- ``lists``: all Redis access of a gateway; the Lua scripts are in ``scripts/``
- ``contract``: the producers' side: submit a file, read a status, check health
- ``producer_types``: requests and responses of ``contract``
- ``factory``: builds a contract or a gateway from settings
"""
