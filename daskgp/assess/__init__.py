"""Predictions held against observations: scores, checks, leave-one-out and variograms."""
