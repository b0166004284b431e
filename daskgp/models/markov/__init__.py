"""Low-rank-cum-Markov approximation: blocks that are conditioned on those near them."""
