"""The choice of a method: a profile of the data, candidates, trials of them, and the search."""
