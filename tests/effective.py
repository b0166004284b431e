"""Settings of many tests, of which some are idle in one or the other."""

from daskgp.estimators import requirements


def effective(kind, **settings):
    """Return an estimator of a kind without the settings that others make idle: it refuses them."""
    idle = requirements.idle(kind(**settings))
    return kind(**{name: value for name, value in settings.items() if name not in idle})
