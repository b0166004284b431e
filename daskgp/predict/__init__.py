"""Predictions of a fitted method: lazy, to a store, averaged over regions, and scored."""
