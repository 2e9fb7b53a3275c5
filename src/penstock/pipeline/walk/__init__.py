"""Walks: the files below a folder, and the rule for each skipped path.

- ``protocol``: rules of a walk and its reports
- ``walker``: ``walk``, the files and skipped paths in order
- ``rules``: the rules applied to one path
- ``single_path``: the same rules for single paths, without a walk
- ``ignore_files``: ``.gitignore`` and ``.penstockignore`` files
- ``patterns``, ``glob``: lists of patterns, and one pattern, as git reads them
- ``repository``: git repositories (branch, remote, tenant) and other source trees, where code is indexed
"""
