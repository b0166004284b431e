"""Experts, exact or sparse, and the aggregation of their predictions."""
