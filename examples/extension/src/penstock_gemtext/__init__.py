"""An extension of Penstock: Gemini pages, an embedder of letters, and vectors in files.

- ``gemtext``: the format of Gemini pages (``.gmi``)
- ``sections``: a chunker that cuts them at their headings
- ``letters``: an embedder of three letters at a time
- ``vector_files``: a vector store in a folder
"""
