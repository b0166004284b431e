"""Choice of a method, a kernel and sizes by scores of held-out rows, within a budget of time."""
