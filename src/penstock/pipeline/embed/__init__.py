"""From the text of a chunk to a vector."""
