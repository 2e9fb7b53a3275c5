"""PDF through pdfium: text, form fields, properties and pictures of pages.

- ``document``: the extractor, and an open document
- ``text``: the text of a page, with its lines and words put together
- ``forms``: form fields and notes on a page
- ``objects``: pictures, shading and other objects that a page shows
- ``layer``: measures of a text layer, which decide about OCR
- ``properties``: title, author, dates and attached files
- ``damage``: signs of damage that pdfium repairs without a word
"""
