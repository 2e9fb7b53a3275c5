"""Chunking: from a page of text to chunks with stable boundaries. An edit moves only nearby cuts.

- ``protocol``: the interface of a chunker; sizes and the chunk itself
- ``prose``: chunks of prose, marked-up text and rows
- ``code``: chunks of source code, with the names they define
- ``blocks``: units of prose: headings, paragraphs, fenced code, lines
- ``headings``: the form of headings in Markdown, reStructuredText, AsciiDoc and Org
- ``languages``, ``more_languages``, ``grammar``: the grammars, and their names for functions and classes
- ``boundaries``: the choice of cuts between units
- ``range_minima``: the smallest key in a range, for ``boundaries``
"""
