"""Pipeline: from the bytes of a source to pages, chunks and vectors. Computes only; opens no store.

- ``pipeline``: ``Pipeline``, the parts that one process uses, and the fingerprints of their work
- ``draft``: a document as pages and chunks, before it has vectors
- ``fingerprints``: fingerprints of extractors, chunkers and models; outdated documents
- ``budget``: limits on CPU time and memory for one file
- ``endpoint``, ``endpoint_client``, ``call_limits``: endpoints compatible with OpenAI's, calls to them, and
  limits on the number of calls
- ``rerank_endpoint``: the best hits of a search, scored by an endpoint
- ``memory_pool``: memory for large files and OCR, shared by the processes of a worker
- ``walk/``: the files below a folder, and the reason for each path that is skipped
- ``extract/``: the text of a file, page by page; hostile formats run in a sandbox process
- ``ocr/``: the text in pictures of pages
- ``chunk/``: chunks with boundaries that survive edits elsewhere in the text
- ``embed/``: the vector of a text
- ``graph/``: the entities and relations of a text
- ``vectors/``: the nearest vectors, from memory or from cache files
"""
