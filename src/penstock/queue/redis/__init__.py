"""The Redis engine: rows in hashes, indexes in sorted sets, every change in one Lua script.

- ``queue``: the queue protocol on Redis
- ``limits``: limits and the rows that wait for them
- ``queries``: find, count and list rows
- ``codec``: rows and requests as the scripts store them
- ``scripts``: the Lua scripts by name, joined from the files in ``scripts/``
- ``server``: the connection, and translation of driver errors
- ``server_check``: version, settings and format checks
- ``subscription``: change notifications

``scripts/keys.lua`` lists all keys. Files named for a method are scripts; files with plural nouns are parts.
"""
