"""Handlers: the code for each type of job, and for the tasks of documents.

- ``context``: what a handler is given, the registry of handlers, and outcomes of failed tasks
- ``functions``, ``async_run``: jobs that run functions of an application, maps and backups
- ``documents``: registers all handlers below
- ``files``, ``file_request``: jobs for one file
- ``members``, ``containers``: files inside others, as documents
- ``folders``: jobs for a folder or project
- ``libraries``: jobs for the documentation of libraries, and for web pages
- ``notes``: jobs for texts without a file
- ``moves``, ``missing_files``: files that moved, announced or not, or are missing
- ``removal``: removal of documents and tenants, and turns of serial workers
- ``reindex``: documents made with other settings or another model, child jobs and counts of a walk
- ``generations``: storing and embedding documents in batches
- ``outside_stores``: copies in vector and graph stores outside the catalog
- ``graphs``: entities and relations of chunks
- ``source_files``: Markdown and pictures of pages, fetched files, uploads
- ``phases``: tasks that read pages, embed chunks and extract their entities
- ``webhooks``: delivery of webhooks
"""
