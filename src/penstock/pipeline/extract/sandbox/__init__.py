"""Sandbox: extraction in a child process with limits, for parsers that may crash.

- ``sandbox``: the calls of a worker, and what becomes of a file whose parser died
- ``process``: the zygote and its children, as the worker sees them
- ``server``: the program that runs in these processes, and how the kernel confines them
- ``messages``: the messages between the two
"""
