"""Arrays of NumPy or CuPy: the only door to CuPy, linear algebra, and small matrices together."""
