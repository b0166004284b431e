"""Settings shared by all tests."""

from hypothesis import settings

# Machines differ in speed and a run must not depend on it, nor on chance.
settings.register_profile("daskgp", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("daskgp")
