"""From a directory to the files in it that are worth reading, and why the others are not."""
