"""A fit from its data to its solution: what it needs, where it starts, and its rounds."""
