"""Figures: what is drawn on which scale, and what bad input says."""

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from daskgp.errors import InputError
from daskgp.plot import canvas, curves, fields


def field(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 2, size=(n, 2))
    truth = np.sin(3 * X[:, 0]) + X[:, 1]
    return X, truth, truth + 0.1 * rng.normal(size=n), rng.uniform(0.1, 0.3, size=n)


def on_grid():
    x, y = np.meshgrid(np.linspace(0, 3, 12), np.linspace(5, 6, 7))
    X = np.stack([x.ravel(), y.ravel()], axis=1)
    shuffle = np.random.default_rng(0).permutation(len(X))
    return X[shuffle], (10 * X[:, 0] + X[:, 1])[shuffle]


@pytest.mark.parametrize("points", [field(), field(1)])
def test_a_map_is_written_with_three_panels(tmp_path, points):
    path = tmp_path / "map.png"
    options = {"names": ("lon", "lat"), "label": "K", "title": "t", "path": path}
    panels = list(fields.posterior_map(*points, **options))
    assert mpl.image.imread(path).ndim == 3
    fig = panels[0].figure
    assert fig.get_suptitle() == "t"
    assert [ax.get_title() for ax in panels] == ["truth", "mean", "standard deviation"]
    assert [ax.get_xlabel() for ax in panels] == ["lon"] * 3
    assert sorted(ax.get_ylabel() for ax in fig.axes if ax not in panels) == ["K", "K"]


def test_residuals_take_a_frame_with_times():
    when = pd.date_range("2024-01-01", periods=12)
    X = pd.DataFrame({"day": when, "depth": np.arange(12.0) % 5})
    ax = fields.residuals(X, np.ones(12), np.zeros(12), np.ones(12))
    assert ax.collections[0].get_offsets()[:, 0].min() == 19_723


def test_four_panels_are_in_two_rows():
    X, truth, mean, std = field()
    observed = np.where(X[:, 0] > np.median(X[:, 0]), truth, np.nan)
    axes = fields.posterior_map(X, truth, mean, std, observed=observed, names=("a", "b"))
    assert [ax.get_title() for ax in axes] == ["observed", "truth", "mean", "standard deviation"]
    assert [ax.get_subplotspec().rowspan.start for ax in axes] == [0, 0, 1, 1]
    assert [ax.get_xlabel() for ax in axes] == ["", "", "a", "a"]
    assert [ax.get_ylabel() for ax in axes] == ["b", "", "b", ""]
    limits = [ax.collections[0].get_clim() for ax in axes]
    assert limits[0] == limits[1] == limits[2] != limits[3]


def test_truth_and_mean_share_a_scale_that_outliers_do_not_stretch():
    X, truth, mean, std = field()
    mean[0] = 1e6
    axes = fields.posterior_map(X, truth, mean, std)
    first, second, third = (ax.collections[0] for ax in axes)
    assert first.get_clim() == second.get_clim() != third.get_clim()
    assert first.get_clim()[1] < 10
    assert first.get_cmap().name != third.get_cmap().name


def test_points_of_a_grid_become_an_image_in_place():
    X, values = on_grid()
    values[3] = np.nan
    axes = fields.posterior_map(X, values, values, np.ones_like(values))
    mesh = axes[0].collections[0]
    image = mesh.get_array()
    assert image.shape == (7, 12)
    assert image.mask.sum() == 1
    assert image[0, 11] == pytest.approx(35.0)
    assert image[6, 0] == pytest.approx(6.0)


def test_marked_places_do_not_widen_the_map():
    X, values = on_grid()
    marked = np.array([[1.0, 5.5], [100.0, 100.0]])
    axes = fields.posterior_map(X, values, values, np.ones_like(values), marked=marked)
    assert len(axes[2].collections) == 2
    assert axes[2].get_xlim()[1] < 4


def test_history_is_drawn_over_rounds_or_time(tmp_path):
    entries = [{"iteration": i, "seconds": 2.0 * i, "objective": -10.0 / i} for i in (1, 2, 3)]
    ax = curves.history(entries, against="seconds", path=tmp_path / "h.svg")
    line = ax.lines[0]
    np.testing.assert_allclose(line.get_xdata(), [2, 4, 6])
    np.testing.assert_allclose(line.get_ydata(), [-10, -5, -10 / 3])
    assert (tmp_path / "h.svg").read_text().startswith("<?xml")


def test_history_draws_what_only_some_steps_have():
    entries = [{"iteration": i, "objective": -1.0} for i in range(1, 6)]
    entries[1]["validation"], entries[3]["validation"] = -0.5, -0.25
    line = curves.history(entries, against="iteration", value="validation").lines[0]
    np.testing.assert_allclose(line.get_xdata(), [2, 4])
    np.testing.assert_allclose(line.get_ydata(), [-0.5, -0.25])
    with pytest.raises(InputError, match="choose value= among iteration, objective, validation"):
        curves.history(entries, against="iteration", value="loss")


def test_calibration_draws_coverage_against_level():
    rng = np.random.default_rng(0)
    mean = np.zeros(4000)
    ax = curves.calibration(rng.normal(size=4000), mean, mean + 1, levels=np.array([0.5, 0.9]))
    line = ax.lines[1]
    np.testing.assert_array_equal(line.get_xdata(), [0.5, 0.9])
    np.testing.assert_allclose(line.get_ydata(), [0.5, 0.9], atol=0.03)


@pytest.mark.parametrize("one_scale", [True, False])
def test_maps_share_a_scale_if_asked_to_and_mark_what_lies_below(tmp_path, one_scale):
    X, values = on_grid()
    low = np.where(values > 20, -1.0, values)
    border = np.array([[0.0, 5.5], [3.0, 5.5]])
    path = tmp_path / "maps.png"
    panels = {"a": values, "b": low}
    options = {"below": 0.0, "marked": X[:3], "lines": [border], "path": path}
    first, second = fields.maps(X, panels, one_scale=one_scale, **options)
    share = np.mean(low < 0)
    assert first.get_title() == "a: 0.0% below 0"
    assert second.get_title() == f"b: {share:.1%} below 0"
    meshes = first.collections[0], second.collections[0]
    assert (meshes[0].get_clim() == meshes[1].get_clim()) is one_scale
    assert min(meshes[0].get_clim()[0], meshes[1].get_clim()[0]) >= 0
    assert len(first.figure.axes) == (3 if one_scale else 4)  # bars
    under = mpl.colors.to_hex(meshes[1].get_cmap()(-1))
    assert under == canvas.ALARM
    assert path.exists()


def test_posteriors_along_a_line_show_jumps(tmp_path):
    x = np.array([0.0, 1.0, 1.0, 2.0])
    panel = np.array([0.0, 0.0, 1.0, 1.0]), np.full(4, 0.1)
    points = np.array([0.5]), np.array([0.2])
    path = tmp_path / "lines.png"
    axes = curves.posterior_lines(
        x, {"a": panel, "b": panel}, points=points, breaks=[1.0], path=path
    )
    drawn, data, mean = axes[1].lines
    assert list(drawn.get_xdata()) == [1.0, 1.0]
    assert list(data.get_xdata()) == [0.5]
    np.testing.assert_array_equal(mean.get_ydata(), panel[0])
    assert path.exists()


def test_lines_in_rows_have_the_reference_on_every_panel():
    x, panel = np.array([0.0, 1.0]), (np.zeros(2), np.full(2, 0.1))
    known = np.array([0.5, 0.25]), np.full(2, 0.25)
    axes = curves.posterior_lines(x, dict.fromkeys("abc", panel), reference=known, columns=2)
    assert [ax.get_visible() for ax in axes[0].figure.axes] == [True, True, True, False]
    assert [ax.get_xlabel() for ax in axes] == ["", "x", "x"]
    assert [ax.get_ylabel() for ax in axes] == ["y", "", "y"]
    (legend,) = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "mean ± two standard deviations",
        "mean",
        "reference",
        "reference ± two standard deviations",
    ]
    for ax in axes:
        _, mean, low, high = (line.get_ydata() for line in ax.lines)
        np.testing.assert_array_equal([mean, low, high], [known[0], [0.0, -0.25], [1.0, 0.75]])


def test_a_tradeoff_has_a_panel_a_figure_and_a_line_a_group(tmp_path):
    lines = {"few": np.array([1.0, 0.1]), "many": np.array([0.5, 0.01])}
    path = tmp_path / "tradeoff.png"
    panels = {"error": lines, "seconds": lines}
    reference = {"seconds": 2.0}
    error, seconds = curves.tradeoff([0, 8], panels, name="order", reference=reference, path=path)
    assert (len(error.lines), len(seconds.lines)) == (2, 3)
    assert error.get_yscale() == "log"
    assert [t.get_text() for t in error.get_xticklabels()] == ["0", "8"]
    assert [t.get_text() for t in error.get_legend().get_texts()] == ["few", "many"]
    assert [t.get_text() for t in seconds.get_legend().get_texts()] == ["reference"]
    assert path.exists()


def test_values_that_are_not_positive_are_drawn_too():
    lines = {f"line {i}": np.array([1.0, -1.0]) for i in range(9)}
    (ax,) = curves.tradeoff([1, 2], {"score": lines})
    assert ax.get_yscale() == "symlog"
    styles = [line.get_linestyle() for line in ax.lines]
    assert styles == ["-"] * 8 + ["--"]  # colours repeat


def test_traces_may_differ_in_length(tmp_path):
    path = tmp_path / "traces.png"
    lines = {"long": np.array([1.0, 0.5, 0.3]), "short": np.array([1.0, 0.4])}
    panels = {"noise": lines, "scale": lines}
    noise, scale = curves.traces(panels, reference={"noise": 0.2}, path=path)
    assert [len(line.get_xdata()) for line in scale.lines] == [3, 2]
    assert len(noise.lines) == 3
    assert path.exists()


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: fields.maps(np.zeros((3, 2)), {}), "panels is empty"),
        (lambda: fields.maps(np.zeros((3, 2)), {"a": np.zeros(2)}), r"a has shape \(2,\)"),
        (lambda: curves.posterior_lines(np.zeros(3), {}), "of 0 panels"),
        (lambda: curves.tradeoff([0, 1], {}), "panels is empty"),
        (lambda: curves.traces({}), "panels is empty"),
        (lambda: curves.tradeoff([0, 1], {"e": {"a": np.ones(3)}}), r"a has shape \(3,\)"),
    ],
)
def test_panels_that_do_not_fit_are_named(draw, words):
    with pytest.raises(InputError, match=words):
        draw()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, t, m, s: (X[:, :1], t, m, s), ["X has shape (400, 1)", "(n, 2)"]),
        (lambda X, t, m, s: (X[:0], t, m, s), ["X has shape (0, 2)"]),
        (lambda X, t, m, s: (X, t, m[:-1], s), ["mean has shape (399,)", "400 points"]),
        (lambda X, t, m, s: (X, t, m, s * np.nan), ["standard deviation holds no finite value"]),
    ],
)
def test_bad_arrays_are_named(change, words):
    with pytest.raises(InputError) as caught:
        fields.posterior_map(*change(*field()))
    assert all(word in str(caught.value) for word in words)


def test_bad_histories_are_named():
    with pytest.raises(InputError, match="history is empty"):
        curves.history([])
    with pytest.raises(InputError, match=r"no 'evaluations': .*iteration, objective"):
        curves.history([{"iteration": 1, "objective": 0.0}])


@pytest.mark.parametrize("name", ["there/is/none.png", "figure.xyz"])
def test_a_figure_that_cannot_be_written_is_named(tmp_path, name):
    with pytest.raises(InputError, match=f"cannot write the figure .*{name}"):
        fields.posterior_map(*field(), path=tmp_path / name)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'daskgp\[plot\]'"):
        fields.posterior_map(*field())
