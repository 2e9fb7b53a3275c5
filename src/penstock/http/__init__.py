"""The HTTP door: routes over the service layer, run by ``penstock serve``.

``server``: makes a server: the application of all routes, sockets, threads, the worker beside it, its end
``connections``: limits on the time and size of a request's head, and who a request comes from
``guard``: checks before a request is read: host, origin, key, rate and size; sessions of browsers
``request_context``: what the routes of a server share, the sender of a request, and threads for handlers
``request_bodies``: bodies and filters of requests, checked
``problems``: answers as JSON, and every error as a problem document (RFC 9457)
``index_routes``, ``job_routes``, ``document_routes``, ``search_routes``, ``queue_routes``: of the services
``collection_routes``, ``library_routes``, ``limit_routes``, ``note_routes``, ``schedule_routes``: of the same
``upkeep_routes``: overview, history, moves, removals and ended jobs
``uploads``: pages of documents, their pictures, and uploads, received and split
``pages``: static files of the dashboard, in the folder ``dashboard``, and the server's health
``event_routes``, ``event_hub``: streams of events, and the thread that feeds them
``quick_notes``: the short way of notes, many in one transaction
"""
