"""Vector stores outside the catalog, which hold a copy of its vectors.

``protocol``    ``VectorStore``, the contract of every store, and the names of collections
``address``     URLs of vector stores, as the setting gives them
``factory``     from a URL to a store; nothing is connected before its first use
``failures``    errors of clients as errors with a cause and a remedy
``client_store``  what stores behind an official client share; folders of embedded engines
``qdrant``      Qdrant: a server, or the engine inside its client
``chroma``      Chroma: a server, or the embedded engine
``pgvector``    tables in PostgreSQL with the extension pgvector
"""
