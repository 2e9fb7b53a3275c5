"""Graph stores outside the catalog, which hold a copy of its entities and relations.

``protocol``  ``GraphCopy``, the contract of every store, and the URLs of stores
``neo4j``     Neo4j, by its official driver
``reader``    the graph of a tenant, read from a copy; the catalog says what is published
"""
