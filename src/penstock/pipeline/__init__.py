"""What turns a source into pages, chunks and vectors. It decides and computes; it never opens a store."""
