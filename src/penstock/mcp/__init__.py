"""The MCP server: Penstock's tools and resources for agents, over stdio or inside ``penstock serve``.

``toolbox``: one method for each tool and resource, as text; knows nothing of the protocol
``texts``: results as short texts with paths and line numbers
``endpoint``: the server on a route of ``penstock serve``
``server``: the tools with their descriptions, bound to the SDK; progress, confirmation, errors
``interrupt``: Ctrl-C for a server on standard input
"""
