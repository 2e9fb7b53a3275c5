"""Extraction: from the bytes of a file to pages of text.

- ``protocol``: the interface of an extractor; file types, pages and limits
- ``file_types``, ``signatures``: the type of a file, by its name and its content
- ``formats``: the table of formats: what is read of each, and what it needs
- ``factory``: the extractor for a type, and extraction in this process
- ``sandbox``: extraction in a child process with limits, for parsers that may crash
- ``sandbox_process``, ``sandbox_server``, ``sandbox_messages``: its processes, from both sides
- ``confinement``: what the kernel denies such a process
- ``charset``, ``charset_labels``: from bytes to text that every store can keep; names of encodings in files
- ``text``, ``tables``, ``structured``: plain text and code; CSV; JSON, XML and notebooks
- ``subtitles``: the spoken lines of SubRip and WebVTT files
- ``html``, ``html_cost``: HTML as Markdown; an estimate that refuses pages with quadratic cost
- ``mail``, ``outlook``: messages and mailboxes; messages of Outlook
- ``archive``, ``compressed``: zip and tar; single files behind gzip, bzip2 or xz
- ``member_names``: safe names of attachments and members of archives
- ``paged``: documents whose pages are read one at a time
- ``image``: pictures, whose text OCR recognizes
- ``pdf``: PDF through pdfium
- ``pdf_text``, ``pdf_forms``, ``pdf_objects``: text, form fields and notes, and other objects of a PDF page
- ``pdf_layer``: measures of a text layer, which decide about OCR
- ``pdf_properties``, ``pdf_damage``: properties and attached files of a PDF; signs of damage
- ``office``: Word, PowerPoint, Excel, OpenDocument, RTF and EPUB (a package)
"""
