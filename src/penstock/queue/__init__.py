"""The job queue: one contract, five engines.

- ``job``, ``payloads``: the values of the queue, and what a request holds
- ``transitions``, ``retry``: what becomes of a job after an event, and when it is tried again
- ``schedules``, ``limits``: jobs added by the clock, and the number of jobs of a key that run at once
- ``protocol``: the contract of every engine
- ``engine``: base class of the engines built on the rules, and waiting
- ``rules/``: the decisions, written once over the rows of a transaction
- ``memory/``, ``jsonl/``, ``sqlite/``, ``postgres/``: engines built on the rules
- ``redis/``: an engine with the same rules in Lua
- ``sql/``: statements, schema scripts and filters of the SQL engines
- ``factory``: opens the queue of a store URL
- ``file_watch``: waiting for changes of files and for commits to a SQLite file
"""
