"""A fitted method as a value: its layers, and the training rows that predictions read back."""
