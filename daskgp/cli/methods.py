"""Names of the methods, known without the imports of their estimators."""

MODELS = (
    "sgpr",
    "lma",
    "pic",
    "vecchia",
    "experts",
    "opticom",
    "cagp",
    "cggp",
    "decoupled",
    "svgp",
    "ssgp",
    "exact",
)

AUTO = "auto"
"""Name of the model that chooses one of the methods."""
