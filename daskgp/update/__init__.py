"""Rows that are added to a fitted method or taken out of it, without a pass over the others."""
