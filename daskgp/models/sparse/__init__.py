"""Methods with inducing inputs, and with features, whose objective is a sum over blocks."""
