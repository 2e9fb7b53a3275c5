"""Clients of a server: the methods of the library's services over HTTP.

``Client`` and ``AsyncClient`` share everything but the sockets. Requests, answers, retries, waiting and event
streams are decided without input or output; a client only connects, sends, receives and sleeps.

``calls``: the request of each method, and the type of its answer
``answers``: answers as values, problem documents as the library's errors, waits before a retry
``exchange``: the steps of a call: requests and answers as bytes (HTTP/1.1), retries, deadlines
``streams``: event streams, with reconnects, and waiting for a job
``uploads``: files that are sent
``connections``: sockets kept for the next call, certificates
``sync_client``: ``Client``, for threads
``async_client``: ``AsyncClient``, for asyncio
"""
