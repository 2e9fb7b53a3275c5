"""Extraction: from the bytes of a file to pages of text.

- ``protocol``: the interface of an extractor; file types, pages and limits
- ``file_types``, ``signatures``: the type of a file, by its name and its content
- ``formats``: the table of formats: what is read of each, and what it needs
- ``code_names``: the languages of source files, by their names
- ``factory``: the extractor for a type, and extraction in this process
- ``charset``, ``charset_labels``: from bytes to text that every store can keep; names of encodings in files
- ``stated_values``: names, titles and dates that a file states about itself
- ``text``, ``tables``, ``structured``: plain text and code; CSV; JSON, XML and notebooks
- ``subtitles``: the spoken lines of SubRip and WebVTT files
- ``html``, ``html_cost``: HTML as Markdown; an estimate that refuses pages with quadratic cost
- ``paged``: documents whose pages are read one at a time
- ``image``: pictures, whose text OCR recognizes
- ``pdf/``: PDF through pdfium
- ``office/``: Word, PowerPoint, Excel, OpenDocument, RTF and EPUB
- ``containers/``: mail, archives and compressed files
- ``sandbox/``: extraction in a child process with limits, for parsers that may crash
"""
