"""Rows in an order, cut into blocks: sorted, sampled, prepared, and the neighbours of a block."""
