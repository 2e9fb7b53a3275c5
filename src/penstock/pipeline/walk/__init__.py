"""Walks: the files below a folder, and the rule for each skipped path.

- ``protocol``: rules of a walk and its reports
- ``walker``: ``walk``, the files and skipped paths in order
- ``rules``: the rules applied to one path
- ``single_path``: the same rules for single paths, without a walk
- ``ignore_files``: ``.gitignore`` and ``.penstockignore`` files
- ``patterns``, ``glob``: lists of patterns, and one pattern, as git reads them
- ``project_files``: source trees, where code is indexed unless the request says otherwise
- ``repository``: git repositories: branch, remote and tenant
"""
