"""Office documents as Markdown, by readers of our own; no part of a document is written to the disk.

- ``archive``: parts of a document that is a ZIP archive, within limits
- ``xml_events``: XML as events, of limited depth and without document types
- ``markdown_page``: the writer of pages
- ``ooxml``, ``drawn_texts``: packages of Office Open XML with their properties; texts of drawings
- ``pages``: documents of several pages, each with its own failure
- ``ole``: containers of Office 97 to 2003, with their properties
- ``pptx``: PowerPoint presentations
- ``sheets``: Excel workbooks
- ``docx``, ``docx_story``, ``docx_styles``: Word documents; their stories; their styles and lists
- ``opendocument``, ``odf_story``, ``odf_styles``, ``odf_sheets``: OpenDocument texts and presentations; their
  paragraphs; their styles and lists; spreadsheets
- ``rtf``, ``rtf_reader``, ``rtf_codes``: RTF documents; their groups and control words; character sets
- ``epub``: books
- ``doc``, ``doc_paragraphs``, ``ppt``: Word and PowerPoint 97 to 2003; formats of the paragraphs of Word
- ``table_grid``: tables of text documents
"""
