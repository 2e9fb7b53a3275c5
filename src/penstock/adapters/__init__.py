"""Adapters to other packages: LangChain, LlamaIndex and pytest.

Each module imports the package it adapts to, which an extra installs. All of them take a ``Penstock`` or a
``Client`` of a server.
"""
