"""Database access shared by the queue and the catalog.

``sqlite``    connections and transactions on one file, its loss, translated errors, and migration
``postgres``  a pool of connections, the clock of the server, translated errors, and migration
``schema``    numbered migration scripts and the names they create; fair turns, and hooks of ``fork``
"""
