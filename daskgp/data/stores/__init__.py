"""Stores of a folder or of objects: groups of arrays, locks, checkpoints and models."""
