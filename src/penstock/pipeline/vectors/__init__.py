"""Finding the vectors nearest to one."""
