"""Figures of tests are drawn without a window, and closed."""

import matplotlib as mpl
import pytest
from matplotlib import pyplot

mpl.use("agg")


@pytest.fixture(autouse=True)
def _no_figure_is_left():
    yield
    pyplot.close("all")
