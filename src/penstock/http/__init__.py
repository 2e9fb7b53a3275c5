"""The HTTP door: routes over the service layer, run by ``penstock serve``.

``factory``: makes a server, or says what has to be installed
``server``: sockets, threads and the end of a server; the worker beside it
``api``: the application of all routes, and its OpenAPI document
``connections``: limits on the time and size of a request's head
``guard``: checks before a request is read: host, origin, key, rate and size
``request_context``: what the routes of a server share, and the sender of a request
``index_routes``, ``job_routes``, ``document_routes``, ``search_routes``, ``queue_routes``: of the services
``note_routes``: notes
``library_routes``: documentation of libraries
``schedule_routes``: jobs by the clock
``limit_routes``: limits by key
``upkeep_routes``: overview, history, moves, removals and ended jobs
``file_routes``: pages of documents, their pictures, and uploads
``upload_stream``, ``multipart``: the body of an upload, received and split
``health_routes``, ``session_routes``: routes of the server and of the sender
``event_routes``, ``event_hub``: streams of events, and the thread that feeds them
``dashboard_files``: static files of the dashboard, in the folder ``dashboard``
``quick_notes``: the short way of notes, many in one transaction
``request_bodies``, ``job_queries``: bodies and filters of requests, checked
``upkeep_bodies``: those of notes and of the upkeep
``answers``: answers and their schemas
``problems``: every error as a problem document (RFC 9457)
``thread_pools``: threads for handlers; those that write cannot keep those that read waiting
"""
