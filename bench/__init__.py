"""Penstock's engines next to hand-written floors, measured in the same run. ``python -m bench --help``."""
