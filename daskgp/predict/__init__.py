"""Predictions of a fitted method: moments, layers around it, averages and sample paths."""
