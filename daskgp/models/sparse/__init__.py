"""Methods with inducing inputs or features, whose objective is a sum over blocks."""
