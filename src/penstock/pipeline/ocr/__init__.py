"""Recognition of text in pictures of pages (OCR).

- ``protocol``: options, results, and the interface of an engine; the models of Tesseract
- ``pages``: the pages of a document, their memory, and the choice between text layer and recognized text
- ``engines``: recognition on this machine: turned and skewed pages, Tesseract, rapidocr (an extra)
- ``endpoint``: the engine behind a vision endpoint
"""
