"""The job queue: one contract, five engines.

- ``protocol``: the contract of every engine
- ``schedule_rows``: the contract for schedules, and what engines share of it
- ``limit_rows``: the contract for limits, and what engines share of it
- ``exchange``: the result of a settle and a claim in one call
- ``positions``: additions with positions, for engines that read them one by one
- ``engine``: base class of the engines built on the rules
- ``rules/``: the decisions, written once over the rows of a transaction
- ``memory/``, ``jsonl/``, ``sqlite/``, ``postgres/``: engines built on the rules
- ``redis/``: an engine with the same rules in Lua
- ``sql/``: statements, schema scripts and filters of the SQL engines
- ``factory``: opens the queue of a store URL
- ``wait``: waiting for a state, and for events shared by threads
- ``file_watch``: waiting for changes of files and for commits to a SQLite file
- ``fork_hooks``: hooks after ``fork``
"""
