"""Settings of many tests, of which some are idle in one or the other."""

from daskgp.fit import effects


def effective(kind, **settings):
    """Return an estimator of a kind without the settings that others make idle: it refuses them."""
    idle = effects.idle(kind(**settings))
    return kind(**{name: value for name, value in settings.items() if name not in idle})
