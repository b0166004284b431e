"""Axes: every function draws on those given, or on a new figure."""

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.figure import Figure

import daskgp
from daskgp import plot
from daskgp.assess.leaderboard import Leaderboard, Trial
from daskgp.errors import InputError


def drawings():
    """Return every function, called with small data: those of one panel, and of several."""
    x, values = np.arange(4.0), np.ones(4)
    points = np.stack([x, x[::-1]], axis=1)
    entries = [{"evaluations": 1, "objective": -1.0}]
    said = {"kernel": "rbf", "settings": {}, "scores": {}, "seconds": 1.0, "bytes": 1}
    trials = [
        Trial(stage="method", method=name, rows=4, score=1.0, error=0.1, **said)
        for name in ("sgpr", "mean")
    ]
    board = Leaderboard.of("nlpd", trials, trials[0], 4)
    one = {
        "history": lambda o: plot.history(entries, **o),
        "pit": lambda o: plot.pit(x, x, values, **o),
        "calibration": lambda o: plot.calibration(x, x, values, **o),
        "residuals": lambda o: plot.residuals(points, x, x, values, **o),
        "variogram": lambda o: plot.variogram(points, x, **o),
        "choice": lambda o: plot.choice(board, **o),
        "ranks": lambda o: plot.ranks(of("poisson"), points, x, **o),
        "reliability": lambda o: plot.reliability(of("bernoulli"), points, x % 2, **o),
    }

    def of(likelihood):
        kind = daskgp.ExactGP("rbf(1.0)", likelihood=likelihood, optimizer=None, progress=False)
        return kind.fit(points, x % 2)

    model = daskgp.ExactGP(optimizer=None).fit(points, x)
    found = daskgp.check(model, points + 0.1, x)
    dims, coords = ("knot",), {"x0": ("knot", x), "x1": ("knot", x[::-1])}
    fields = xr.Dataset({"variance": (dims, x + 1), "lengthscale": (dims, values)}, coords)
    several = {
        "distances": lambda o: plot.distances(found, **o),
        "posterior_map": lambda o: plot.posterior_map(points, None, x, values, **o),
        "maps": lambda o: plot.maps(points, {"a": x, "b": values}, **o),
        "hyperparameter_map": lambda o: plot.hyperparameter_map(fields, **o),
        "posterior_lines": lambda o: plot.posterior_lines(
            x, {"a": (x, values), "b": (x, values)}, **o
        ),
        "tradeoff": lambda o: plot.tradeoff(x, {"a": {"l": x}, "b": {"l": x}}, **o),
        "spread": lambda o: plot.spread(np.stack([x, x**2, values], axis=1), x, **o),
        "traces": lambda o: plot.traces({"a": {"l": x}, "b": {"l": x}}, **o),
    }
    return one, several


ONE, SEVERAL = drawings()


def test_every_figure_is_tried():
    others = {"check", "explore"}  # files, and not of matplotlib
    assert set(ONE) | set(SEVERAL) == set(plot.__all__) - others


@pytest.mark.parametrize("name", ONE)
def test_one_panel_is_drawn_on_the_axes_given(name, tmp_path):
    fig = Figure()
    left, right = fig.subplots(1, 2)
    assert ONE[name]({"ax": right, "title": "mine", "path": tmp_path / "a.png"}) is right
    assert right.has_data()
    assert not left.has_data()
    assert (right.get_title(), fig.get_suptitle()) == ("mine", "")
    assert (tmp_path / "a.png").exists()
    with pytest.raises(InputError, match="2 axes are given for 1 panels"):
        ONE[name]({"ax": [left, right]})


@pytest.mark.parametrize("name", SEVERAL)
def test_panels_are_drawn_on_the_axes_given(name):
    fig = Figure()
    above, below = fig.subplots(2, 2)
    drawn = SEVERAL[name]({"axes": below, "title": "ours"})
    assert drawn.tolist() == below.tolist()
    assert all(ax.has_data() for ax in below)
    assert not any(ax.has_data() for ax in above)
    assert fig.get_suptitle() == "ours"
    with pytest.raises(InputError, match="4 axes are given for 2 panels"):
        SEVERAL[name]({"axes": [*above, *below]})
    with pytest.raises(InputError, match="give a matplotlib Axes for each"):
        SEVERAL[name]({"axes": ["here", "there"]})


@pytest.mark.parametrize("name", [*ONE, *SEVERAL])
def test_a_new_figure_is_shown_by_pyplot_unless_it_is_saved(name, tmp_path):
    draw = (ONE | SEVERAL)[name]
    draw({"path": tmp_path / "a.svg"})
    assert pyplot.get_fignums() == []
    drawn = np.ravel(draw({}))
    assert drawn[0].figure.number in pyplot.get_fignums()
