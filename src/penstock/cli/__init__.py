"""The command line. ``main`` has the root command, ``session`` the table of commands.

No module here imports msgspec or settings at its top: help loads all commands, and needs neither.

``session``: global options and the assembly; groups of commands, help by task, former spellings
``services``: the same methods on the stores of this machine and on a server
``options``: values typed on the command line, and options that several commands share
``output``, ``exit_codes``: tables and text no wider than the terminal, JSON, errors as one line, exit codes
``progress``: jobs in words and JSON, and the live line of a running job
``hit_page``: hits on a terminal, and the names of projects in commands
``index``: ``penstock index`` of one path or several, its summary and its failed files
``search``, ``documents``, ``notes``, ``graph``, ``projects``, ``libraries``: what is indexed
``jobs``, ``schedules``, ``limits``: jobs and the queue
``server``, ``watch``, ``redis``: long-running processes, keys, models, settings, a check of the installation
``stores``: backups, restores, imports and rebuilds
"""
