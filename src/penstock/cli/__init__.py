"""The command line. ``main`` has the root command and the list of commands.

``session``: global options and the assembly; every command gets one
``arguments``, ``output``, ``job_views``: parsing of values, printing, JSON shapes of jobs
``streams``, ``exit_codes``: errors as one line, exit codes
``index``, ``job_progress``: ``penstock index`` and its progress bar
``document_commands``, ``note_commands``, ``change_commands``, ``rebuild``, ``search``: documents
``job_commands``, ``queue_commands``, ``queue_inspect``, ``queue_manage``: jobs and the queue
``worker``, ``redis_commands``: long-running processes, and producers of the Redis contract
``config_commands``: settings
"""
