"""Variational posteriors that are learned from mini-batches."""
