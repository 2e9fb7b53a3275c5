"""Use cases, one method each; every door calls these and nothing below them.

``throughput``, ``metrics``: totals and rates of all workers, a day of history; metrics for Prometheus
``live_changes``: changes of jobs and documents, for streams of events
``sessions``: cookies of browsers instead of keys
``bulk_actions``: retries and cancels by filter, failures by reason
``job_filters``: filters for jobs, checked
``jobs``: submit, find, cancel, retry, pause, statistics
``functions``, ``tasks``: an application's functions, and the same jobs as a task queue
``function_handle``, ``call_fields``, ``mapped_calls``: a registered function, fields of a call, maps
``schedules``: jobs by the clock
``limits``: limits by key
``documents``, ``notes``, ``search``, ``graph``, ``graph_svg``, ``rebuild``, ``verification``: the index
``neighbour_order``: the order of entities around another
``document_filters``: filters of searches and lists
``rankings``, ``relevance``, ``hits``: parts of a search: merged rankings, the rule for weak hits, hits
``graph_hits``: chunks that relations lead to
``corrections``: misspelt words of a query
``passages``, ``similar``: passages for a prompt, and chunks like a given one
``store_search``: a vector store outside the catalog, searched
``page_texts``: texts of pages, shown and exported
``requests``, ``folder_requests``, ``responses``: checked submissions, and results
``grouped_submissions``, ``note_rows``: submissions of different senders in one transaction, rows of notes
``failures``: files that failed
``diagnosis``: a check of the installation
``models``: embedding models, their installation, and tokens used
``job_reports``: files done, failed and left out by a job, its chunks and current file
``explanations``, ``reasons``: why a job waits, why a path is not found, histories
``job_records``, ``document_records``: the same as records for programs
``access``, ``keys``, ``path_policy``, ``rate_limit``, ``audit``: senders of requests to a server, and limits
``server_status``, ``runtime_file``: the state of a server, and where it runs
``projects``: tenant and branch of documents in git work trees
``change_plan``: jobs for changed paths below a watched folder
``paths``, ``renames``: paths and files named by users, and their moves
"""
