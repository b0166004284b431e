"""Methods that know the kernel matrix of all rows by its products with actions."""
