"""PDF through pdfium: text, form fields, properties and pictures of pages.

- ``document``: the extractor, and an open document; form fields and notes, objects of a page, properties,
  damage
- ``text``: the text of a page, with its lines and words put together, and the quality of its text layer
"""
