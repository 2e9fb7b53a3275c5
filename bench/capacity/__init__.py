"""Measurements of capacity: how much one machine and one server hold, and what it costs there.

- ``jobs``: a million jobs through an engine, added in bulk and drained by real workers
- ``documents``: a catalog that grows to two million chunks, and its calls at each size
- ``document_calls``: the calls of the catalog that are measured
- ``document_texts``: texts and vectors to fill a catalog with
- ``hosts``: many hosts on one PostgreSQL server
- ``host_server``: counters of that server
- ``call_cost``: CPU time of a repeated call
- ``figures``: the report
- ``kept_store``: stores that outlive a run, so that a long measurement can continue
- ``process_memory``: memory and CPU time of processes
- ``functions``: the application of the workers
- ``chart``: line charts as SVG
- ``tables``: tables of a report
- ``page``: tables and charts in ``docs/``
"""
