"""Variational posteriors learned from mini-batches."""
