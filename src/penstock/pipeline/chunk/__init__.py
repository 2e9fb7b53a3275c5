"""Chunking: from a page of text to chunks with stable boundaries. An edit moves only nearby cuts.

- ``text``: the interface of a chunker, the choice of cuts, and chunks of prose, marked-up text and rows
- ``code``: chunks of source code, with the names they define
- ``languages``: the grammars, and their names for functions and classes
"""
