"""Use cases, one method each; every door calls these and nothing below them.

``requests``, ``jobs``, ``bulk_actions``: checked submissions, jobs of one queue, and acts on many of them
``job_views``: reports on jobs, and jobs as records for programs
``functions``: an application's functions, their calls and maps, and the same jobs as a task queue
``schedules``, ``limits``: jobs by the clock, and limits by key
``documents``: documents and their records; ``pages``: their texts and pictures
``folders``, ``projects``, ``paths``: requests for folders, the place of documents in git work trees, paths
``notes``, ``libraries``, ``collections``, ``uploads``: further ways into the index, and out of it
``search``, ``hits``: a search by words, vectors and the graph, and what it returns
``passages``: passages for a prompt, and chunks like a given one
``graph``: entities and relations, and their picture
``why``: why a path is not found, why a job waits, failed files, histories
``doctor``, ``upkeep``: a check of the installation; re-indexing, comparison with the disk, models
``access``, ``keys``, ``shares``: senders of requests to a server, their keys and sessions, and their parts
``server``, ``runtime_file``, ``live_changes``: the state of a server, where it runs, and events
``adoption``: documents that another system has read
``options``: options that the library, the clients and the adapters share
"""
