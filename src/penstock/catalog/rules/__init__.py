"""Decisions of the catalog as pure functions: no store, no clock.

``phases``        the table of phases (unit, gate, reasons), and turns between documents
``initial_state`` the state of new pages and documents in each phase
``rollup``        the status of a page or document, from counts of the parts
``outcomes``      the ways a claimed task can end
``publication``   when a generation is published, kept back or superseded
``failures``      which failures are remembered, and when a failed file is read again
``properties``    what a document states about itself, as it is stored and filtered
``portions``      how much one transaction of ``store`` writes
``identity``      ids derived from content
``path_scope``    paths below a folder, and deletes covering a path
``query_terms``   search terms of a query
``graph_values``  nodes and edges of the graph
``graph_walk``    neighbourhoods and shortest paths
``graph_expansion`` relations that a search follows, and the chunks they lead to
``near_words``    words that may be meant by a misspelt one
``near_names``    names like one that is not there
"""
