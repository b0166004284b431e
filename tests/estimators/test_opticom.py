"""OptiComGP: the estimator, its command and what it refuses."""

import logging

import dask.array as da
import numpy as np
import pytest
from commands import rows
from docs_text import ROOT
from sklearn.base import clone

import daskgp
from daskgp import OptiComGP, kernels
from daskgp.errors import InputError, NumericalError, SettingError
from daskgp.models.sparse import sparse_grid

QUICK = {"level": 4, "optimizer": None, "noise_variance": 0.01}


def test_a_fit_learns_and_predicts():
    X, y = rows()
    model = OptiComGP(level=5, max_iter=20).fit(X, y)
    assert model.score(*rows(200, seed=1)) > 0.95
    mean, std = model.predict(X, return_std=True)
    _, noisy = model.predict(X, return_std=True, include_noise=True)
    assert np.mean(np.abs(y - mean) < 2 * noisy) > 0.9
    assert (std < noisy).all()
    assert model.objective_ > OptiComGP(level=5, optimizer=None).fit(X, y).objective_
    assert model.sample_y(X[:5], 3).shape == (5, 3)


@pytest.mark.parametrize("chunks", [300, 43, 7])
@pytest.mark.parametrize("p", [1, 2])
def test_a_fit_is_the_method_for_any_chunks(chunks, p):
    X, y = rows()
    y = np.column_stack([y, 10 * y**2])[:, :p] if p == 2 else y
    T = rows(20, seed=1)[0]
    lazy = [da.from_array(a, chunks=(chunks, *a.shape[1:])) for a in (X, y)]
    model = OptiComGP("matern52(ard=true)", mean="ols", **QUICK).fit(*lazy)
    scale, theta, method = model.solved_.scaling, model.solved_.theta, model.solved_.method
    block = scale.block(X, np.reshape(y, (len(y), -1)))
    prepared = method.prepare(theta)
    total = method.local(prepared, block)
    state = method.posterior(prepared, total)
    wanted = scale.moments(
        method.predict(theta, state, scale.inputs(T), None, "variance"), scale.inputs(T)
    )
    mean, std = model.predict(T, return_std=True)
    np.testing.assert_allclose(mean.reshape(wanted.mean.shape), wanted.mean, rtol=1e-7)
    np.testing.assert_allclose(std.reshape(wanted.mean.shape) ** 2, wanted.variance, rtol=1e-6)
    np.testing.assert_allclose(model.weights_, state.coefficients, atol=1e-6)
    assert model.objective_ == pytest.approx(method.objective(prepared, total).value, rel=1e-9)


def test_the_grid_fills_the_range_of_the_rows_or_the_bounds():
    X, y = rows()
    X = X * [1.0, 1000.0] + [0.0, 5.0]
    low, high = X.min(axis=0), X.max(axis=0)
    points = sparse_grid.build(2, 4).points
    model = OptiComGP(**QUICK).fit(X, y)
    np.testing.assert_allclose(model.grid_, low + points * (high - low), rtol=1e-9)
    plain = OptiComGP(standardize=False, **QUICK).fit(X, y)
    np.testing.assert_allclose(plain.grid_, model.grid_, rtol=1e-9)
    bounds = [[-1, 4], [0, 4000]]
    model = OptiComGP(bounds=bounds, **QUICK).fit(X, y)
    np.testing.assert_allclose(model.grid_, points * [5, 4000] + [-1, 0], rtol=1e-9)
    np.testing.assert_array_equal(model.levels_, sparse_grid.multi_indices(2, 4))
    assert model.weights_.shape == (7,)


def test_in_one_dimension_it_is_sgpr_with_the_points_of_the_grid():
    X, y = rows(200, 1)
    model = OptiComGP(**QUICK).fit(X, y)
    points = np.min(X) + np.arange(1, 16)[:, None] / 16 * np.ptp(X)
    wanted = daskgp.SGPR(inducing=points, optimizer=None, noise_variance=0.01).fit(X, y)
    for a, b in zip(model.predict(X, True), wanted.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7)
    assert model.objective_ == pytest.approx(wanted.objective_, rel=1e-9)


@pytest.mark.parametrize("weights", ["paper", "combination"])
def test_the_weights_are_those_asked_for(weights):
    X, y = rows()
    model, wanted = (OptiComGP(weights=w, **QUICK).fit(X, y) for w in (weights, "projection"))
    if weights == "paper":
        np.testing.assert_allclose(model.weights_, wanted.weights_, atol=1e-6)
    else:
        np.testing.assert_array_equal(model.weights_, sparse_grid.build(2, 4).coefficients)
        assert not np.allclose(model.weights_, wanted.weights_, atol=1e-2)


def test_a_negative_variance_of_the_paper_says_what_to_do():
    X, y = rows(2_000)
    model = OptiComGP(
        kernels.Matern32(0.5), variance="paper", standardize=False, optimizer=None,
        noise_variance=1e-3,
    )  # fmt: skip
    with pytest.raises(NumericalError, match=r"fit again with variance='linear'$"):
        model.fit(X, y).predict(X, return_std=True)
    sound = clone(model).set_params(variance="linear").fit(X, y)
    np.testing.assert_array_equal(sound.predict(X), model.predict(X))
    assert (sound.predict(X, return_std=True)[1] > 0).all()


def test_few_rows_and_missing_values_are_fine():
    X, y = rows(5)
    X[1, 0] = np.nan
    model = OptiComGP(level=5, optimizer=None).fit(X, y)
    assert model.n_rows_ == 4
    assert np.isnan(model.predict(X)).tolist() == [False, True, False, False, False]


# -- what is refused -----------------------------------------------------------------------


def test_many_dimensions_are_refused_before_a_grid_is_made():
    X, y = rows(20, 30)
    with pytest.raises(
        SettingError, match=r"in 30 dimensions .* at most level=3, which has 1,921$"
    ):
        OptiComGP(level=4).fit(X, y)


def test_a_single_row_is_refused():
    X, y = rows(20)
    for bounds in (None, [[0, 3], [0, 3]]):
        with pytest.raises(InputError, match=r"^1 usable row: rows at two places or more"):
            OptiComGP(bounds=bounds).fit(X[:1], y[:1])
    with pytest.raises(InputError, match="no rows"):
        OptiComGP().fit(X[:0], y[:0])


def test_rows_outside_the_bounds_are_told(caplog):
    X, y = rows()
    with caplog.at_level(logging.WARNING, "daskgp"):
        OptiComGP(bounds=[[0, 3], [1, 2]], **QUICK).fit(X, y)
    told = [record.message for record in caplog.records if "outside bounds" in record.message]
    assert told == [
        "rows lie outside bounds, in 'x1', where the grid has no points: give wider bounds, or "
        "leave them out"
    ]


# -- the page ------------------------------------------------------------------------------


def test_the_table_of_points_is_that_of_the_code():
    page = (ROOT / "docs" / "models" / "opticom.md").read_text()
    table = page[page.index("| Features $d$ |") :].split("\n\n")[0].splitlines()[2:]
    assert len(table) == 6
    for line in table:
        d, *found = (int(cell.replace(",", "")) for cell in line.strip("| ").split("|"))
        assert found == [sparse_grid.n_points(d, level) for level in range(1, len(found) + 1)]
    assert sparse_grid.largest_level(6, 4096) == 5
    assert sparse_grid.largest_level(10, 4096) == 4
    assert [sparse_grid.largest_level(d, 4096) for d in (44, 45)] == [3, 2]


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (
            [[-1e300, 1e300], [0, 3]],
            "bounds of feature 'x0' are -1e\\+300 and 1e\\+300 but its data",
        ),
        ([[50, 60], [0, 3]], "no row lies within bounds, in 'x0'"),
    ],
)
def test_bounds_that_miss_the_data_are_refused(bounds, told, recwarn):
    with pytest.raises(InputError, match=told):
        OptiComGP(bounds=bounds, **QUICK).fit(*rows())
    assert not recwarn.list
