"""Predictions into stores of rows, maps and csv, chunk by chunk."""
