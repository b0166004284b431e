"""Methods that know the kernel matrix of all rows only by its products with actions."""
