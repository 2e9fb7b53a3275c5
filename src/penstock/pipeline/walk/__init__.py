"""Walks: the files below a folder, and the rule for each skipped path.

- ``walker``: ``walk``, the files and skipped paths in order, and the same rules for single paths
- ``ignore``: rules of a walk and its reports; ``.gitignore`` and ``.penstockignore`` files; patterns and
  globs
- ``no_links``: files and folders opened without following a link
- ``repository``: git repositories (branch, remote, tenant) and other source trees, where code is indexed
"""
