"""Penstock beside the libraries that people index folders with, on the same files and embedding function."""
