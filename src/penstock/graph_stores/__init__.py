"""Graph stores outside the catalog, which hold a copy of its entities and relations.

``protocol``  ``GraphCopy``, the contract of every store
``address``   URLs of graph stores, as the setting gives them
``factory``   from a URL to a store; nothing is connected before its first use
``failures``  errors of the driver as errors with a cause and a remedy
``neo4j``     Neo4j, by its official driver
``cypher``    its statements
``reader``    the graph of a tenant, read from a copy; the catalog says what is published
"""
