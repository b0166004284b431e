"""NumPy and CuPy arrays: all access to CuPy, linear algebra, and batches of small matrices."""
