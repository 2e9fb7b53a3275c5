"""Pipeline: from the bytes of a source to pages, chunks and vectors. Computes only; opens no store.

- ``pipeline``: ``Pipeline``, the parts that one process uses, and the fingerprints of their work
- ``draft``: a document as pages and chunks, before it has vectors; fingerprints; outdated documents
- ``budget``: CPU time and memory for one file, also of all processes of a worker; calls to an endpoint
- ``endpoint``, ``endpoint_client``: endpoints compatible with OpenAI's, and calls to them; a re-ranker
- ``walk/``: the files below a folder, and the reason for each path that is skipped
- ``web/``: pages of the web, their links, and the rules of their sites
- ``extract/``: the text of a file, page by page; hostile formats run in a sandbox process
- ``ocr/``: the text in pictures of pages
- ``chunk/``: chunks with boundaries that survive edits elsewhere in the text
- ``embed/``: the vector of a text
- ``graph/``: the entities and relations of a text
- ``vectors/``: the nearest vectors, from memory or from cache files
"""
