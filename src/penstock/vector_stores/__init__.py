"""Vector stores outside the catalog, which hold a copy of its vectors.

``protocol``    ``VectorStore``, the contract of every store; names of collections, and URLs of stores
``factory``     from a URL to a store; nothing is connected before its first use
``client_store``  what stores behind an official client share: translated errors, folders of embedded engines
``qdrant``      Qdrant: a server, or the engine inside its client
``chroma``      Chroma: a server, or the embedded engine
``pgvector``    tables in PostgreSQL with the extension pgvector
"""
