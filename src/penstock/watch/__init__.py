"""The watcher: jobs for what changes on the disk, from events of the system.

``pending_changes``: changed paths until their writers have finished
``watcher``: the loop over events, for several roots
"""
