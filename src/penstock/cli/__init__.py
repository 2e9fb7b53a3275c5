"""The command line. ``main`` has the root command, ``command_group`` the table of commands.

``session``, ``command_group``: global options and the assembly; groups, help by task, former spellings
``lazy_commands``: the commands by name, each imported at its first use
``project_commands``, ``places``: projects, and their names in other commands
``arguments``, ``filter_options``: parsing of values, options that narrow a search or a list
``output``, ``job_views``: printing, JSON shapes of jobs
``text_grid``: tables and fields as aligned text, no wider than the terminal
``streams``, ``exit_codes``: errors as one line, exit codes
``index``, ``index_paths``, ``job_progress``: ``penstock index`` of one path or several, and its progress bar
``page_progress``: pages read of the documents that jobs wait for
``index_summary``, ``index_failures``: report of an index job, and its failed files
``document_commands``, ``note_commands``, ``change_commands``, ``rebuild``, ``search``: documents
``graph_commands``: entities and relations
``hit_page``, ``text_layout``: hits on a terminal, wrapped by the width of characters
``job_commands``, ``queue_commands``, ``queue_inspect``, ``queue_manage``: jobs and the queue
``worker``, ``watch``, ``redis_commands``: long-running processes, and producers of the Redis contract
``serve_commands``, ``key_commands``: the HTTP server and its keys
``config_commands``, ``model_commands``: settings and models
``doctor``, ``completion``: a check of the installation, completion in shells
"""
