"""Handlers: the code for each type of job, and for the tasks of documents.

- ``registry``: ``Registry``, handlers by item type and operation, and their special results
- ``context``: ``Context``, the job, progress, children and cancellation for a handler
- ``functions``, ``payload_model``, ``async_run``: jobs that run functions of an application
- ``function_map``: one function over many payloads, as child jobs
- ``documents``: registers all handlers below
- ``files``, ``file_request``, ``file_reader``, ``file_draft``: jobs for one file
- ``members``, ``member_jobs``, ``container_paths``, ``container_members``: files inside others, as documents
- ``failed_files``: files that failed, recorded in the catalog
- ``declared_facts``: details of a file in its request, compared with the disk
- ``folders``, ``file_comparison``: jobs for a folder or project
- ``work_trees``, ``other_branches``: jobs for a branch that is not checked out, texts of other branches
- ``walk_counts``: counts of a walk for its job, and the paths it skipped
- ``notes``: jobs for texts without a file
- ``moves``, ``removal``, ``tenant_jobs``: renames and deletions
- ``move_detection``, ``missing_files``: files that moved unannounced, or are missing
- ``reindex``, ``model_check``: documents made with other settings or another model
- ``generation_batch``, ``chunk_vectors``: storing and embedding documents in batches
- ``outside_vectors``: points in a vector store outside the catalog
- ``store_fill``, ``store_comparison``: stores outside the catalog, filled from it and compared with it
- ``chunk_graphs``: entities and relations of chunks
- ``graph_copies``: the copy of the graph in a store outside the catalog
- ``service_graphs``: the same from a language model, several chunks at a time
- ``token_meter``: tokens counted by tenant and job, for models that charge for them
- ``child_jobs``: children of a job
- ``page_files``: files with the Markdown of recognized pages
- ``task_failures``: outcomes of tasks that failed
- ``phases``: tasks that read pages, embed chunks and extract their entities
"""
