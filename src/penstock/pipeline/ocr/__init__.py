"""Recognition of text in pictures of pages (OCR).

- ``protocol``: options, results, and the interface of an engine
- ``factory``: the engine for given options
- ``pages``: the pages of a document, and the choice between text layer and recognized text
- ``page_memory``: the memory for one page, and which engines fit in it
- ``local``: recognition on this machine: turned and skewed pages, the choice between two engines
- ``tesseract``, ``models``: the engine of the plain install, and the folders of its models
- ``rapid``: the engine for poor pictures, an extra
- ``endpoint``: the engine behind a vision endpoint
- ``geometry``: size, quarter turns and skew of pictures
"""
