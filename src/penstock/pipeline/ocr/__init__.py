"""Recognition of text in pictures of pages (OCR).

- ``protocol``: options, results, and the interface of an engine
"""
