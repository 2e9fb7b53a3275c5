"""Clients of a server: the methods of the library's services over HTTP.

``Client`` and ``AsyncClient`` share everything but the sockets. Requests, answers, retries, waiting and event
streams are decided without input or output; a client only connects, sends, receives and sleeps.

``calls``: the request of each method, and the type of its answer
``upkeep_calls``: the same for notes, and for the upkeep of queue and catalog
``graph_calls``: the same for entities and relations
``schedule_calls``: the same for schedules, and ``ClientSchedules``
``library_calls``: the same for libraries, and ``ClientLibraries``
``async_resources``: ``AsyncSchedules``, ``AsyncLibraries`` and ``AsyncLimits``, for asyncio
``limit_calls``: the same for limits, and ``ClientLimits``
``answers``: answers as values, problem documents as the library's errors, waits before a retry
``exchange``: the steps of a call: requests and answers as bytes (HTTP/1.1), retries, deadlines
``streams``: event streams, with reconnects, and waiting for a job
``uploads``: files that are sent
``connections``: sockets kept for the next call, certificates
``sync_client``: ``Client``, for threads
``async_client``: ``AsyncClient``, for asyncio
"""
