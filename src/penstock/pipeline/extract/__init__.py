"""Extraction: from the bytes of a file to pages of text.

- ``protocol``: the interface of an extractor; file types, pages and limits
- ``file_types``: the type of a file, by its name and its content; formats of extensions
- ``factory``: the extractor for a type, extraction in this process, and the table of formats
- ``charset``: from bytes to text that every store can keep; names of encodings in files
- ``text``: plain text, Markdown and code; documents read one page at a time; values that a file states
- ``structured``: JSON, XML, notebooks, tables and subtitles
- ``html``: HTML as Markdown; an estimate that refuses pages with quadratic cost
- ``image``: pictures, whose text OCR recognizes
- ``mail``, ``archives``: messages and archives, whose files become documents; ``member_names``: their names
- ``pdf/``: PDF through pdfium
- ``office/``: Word, PowerPoint, Excel, OpenDocument, RTF and EPUB
- ``sandbox/``: extraction in a child process with limits, for parsers that may crash
"""
