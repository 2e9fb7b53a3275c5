"""The duties that keep a queue healthy, one a module. Every worker runs them: each is fenced or idempotent.

A duty does a bounded piece and answers whether there is more: a supervisor has children to watch meanwhile.
"""
