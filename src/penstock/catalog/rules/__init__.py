"""Decisions of the catalog as pure functions: no store, no clock.

``phases``        the table of phases (unit, gate, reasons), and turns between documents
``publication``   the states of pages and documents, how a task can end, when a generation is published,
                  what one transaction writes, and which failures are remembered
``paths``         paths below a folder, deletes covering a path, and ids derived from content
``words``         search terms of a query, text for a keyword index, and words that a misspelt one may mean
``graph``         names like an unknown one, relations that a search follows, neighbourhoods and ways
"""
