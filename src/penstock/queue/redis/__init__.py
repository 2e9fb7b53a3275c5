"""The Redis engine: rows in hashes, indexes in sorted sets, every change in one Lua script.

- ``queue``: the queue protocol on Redis
- ``codec``: rows and requests as the scripts store them
- ``scripts``: the Lua scripts by name, joined from the files in ``scripts/``
- ``server``: the connection, checks of the server, and change notifications

``scripts/keys.lua`` lists all keys. Files named for a method are scripts; files with plural nouns are parts.
"""
