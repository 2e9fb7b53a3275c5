"""Clients of a server: the methods of the library's services over HTTP.

``Client`` and ``AsyncClient`` share everything but the sockets. Requests, answers, retries, waiting and event
streams are decided without input or output; a client only connects, sends, receives and sleeps.

``calls``: the request of each method, the type of its answer, and the files that requests send
``upkeep_calls``: the same for notes, and for the upkeep of queue and catalog
``graph_calls``, ``collection_calls``: the same for entities and relations, and for collections
``schedule_calls``: the same for schedules, and ``ClientSchedules``
``library_calls``: the same for libraries, and ``ClientLibraries``
``limit_calls``: the same for limits, and ``ClientLimits``
``transport``: the steps of a call, retries, answers as values or errors, event streams, certificates
``sync_client``: ``Client``, for threads
``async_client``, ``async_transport``: ``AsyncClient``, for asyncio, and its connections
``async_resources``: ``AsyncSchedules``, ``AsyncLibraries`` and ``AsyncLimits``
"""
