"""Office documents as Markdown, by readers of our own; no part of a document is written to the disk.

- ``package``: ZIP archives and OLE containers within limits, their XML as events, relations, properties,
  drawings
- ``markdown_page``: the writer of pages and tables; documents of several pages
- ``docx``, ``doc``: Word documents, since 2007 and of Word 6 to 2003
- ``slides``, ``sheets``: PowerPoint presentations and Excel workbooks, since 97
- ``odf``: OpenDocument texts, presentations and spreadsheets
- ``rtf``: RTF documents
- ``epub``: books
"""
