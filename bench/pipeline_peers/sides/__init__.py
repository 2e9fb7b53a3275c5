"""Scripts that index a folder, one for each library, written as its documentation says.

Each module has ``index(folder, state)``, which is measured, and ``stored(folder, state)``, which is not: it
returns the texts in the index by the path of their file.
"""
