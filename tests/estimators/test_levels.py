"""Fits to text and categories: kernels, levels that no row of the fit has, stores, the command."""

import logging

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from commands import invoke, refused, succeed

import daskgp
from daskgp.errors import InputError, SettingError
from daskgp.kernels import Categorical, Coregion, Matern32, Rotated

RNG = np.random.default_rng(0)
N = 40
SHIFTS = {"north": 0.0, "mid": 2.0, "south": -1.0}
SITE = RNG.choice([*SHIFTS], N)
X = pd.DataFrame({"x": RNG.uniform(0, 6, N), "site": SITE})
Y = np.sin(X["x"].to_numpy()) + np.array([SHIFTS[site] for site in SITE])
PLACES = np.column_stack([X["x"], [sorted(SHIFTS).index(site) for site in SITE]])
PLAIN = {"optimizer": None, "progress": False}
KERNEL = Categorical(1, 0.3, 2.0) * Matern32(1.5, active_dims=[0])


@pytest.fixture(scope="module")
def model():
    return daskgp.ExactGP(**PLAIN).fit(X, Y)


def test_categories_are_in_the_default_kernel_and_text_predicts_as_its_places_do(model):
    assert isinstance(model.kernel_.parts[0], Categorical)
    assert model.kernel_.parts[0].levels == ("mid", "north", "south")
    assert model.solved_.categories == {"site": ("mid", "north", "south")}
    found = daskgp.ExactGP(KERNEL, **PLAIN).fit(X, Y).predict(X, return_std=True)
    wanted = daskgp.ExactGP(KERNEL, **PLAIN).fit(PLACES, Y).predict(PLACES, return_std=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_numbers_are_levels_by_their_values():
    land = np.column_stack([X["x"], 10 + 10 * PLACES[:, 1]])
    model = daskgp.ExactGP(KERNEL, **PLAIN).fit(land, Y)
    assert model.solved_.categories == {"x1": ("10", "20", "30")}
    wanted = daskgp.ExactGP(KERNEL, **PLAIN).fit(PLACES, Y).predict(PLACES[:5])
    np.testing.assert_allclose(model.predict(land[:5]), wanted, rtol=1e-12)
    with pytest.raises(InputError, match="'x1' has 45, which the fit has not seen; it knows 10"):
        model.predict([[1.0, 45.0]])
    with pytest.raises(InputError, match=r"'x1' is a category of the kernel and has 10\.5, which"):
        daskgp.ExactGP(KERNEL, **PLAIN).fit(land + np.array([0, 0.5]), Y)


def test_a_kernel_that_leaves_out_a_category_is_told(caplog):
    caplog.set_level(logging.WARNING, "daskgp")
    model = daskgp.ExactGP("matern32", **PLAIN).fit(X, Y)
    assert "'site' is a category that the kernel does not use: add kernels.Categ" in caplog.text
    other = X.assign(site="mid")
    np.testing.assert_array_equal(model.predict(X), model.predict(other))


def test_a_sparse_grid_takes_no_category():
    with pytest.raises(InputError, match="'site' is a category, along which a sparse grid has no"):
        daskgp.OptiComGP(level=2, **PLAIN).fit(X, Y)


def test_trends_leave_out_categories():
    model = daskgp.ExactGP(KERNEL, mean="linear", **PLAIN).fit(X, Y)
    assert [row.name for row in model.trend_] == ["intercept", "x"]
    with pytest.raises(SettingError, match="mean names 'site', which is a category"):
        daskgp.ExactGP(KERNEL, mean=["site"], **PLAIN).fit(X, Y)


def test_missing_text_is_a_missing_value(model, caplog):
    gaps = X.assign(site=X["site"].where(np.arange(N) > 3, [None, np.nan, "", " "] + [""] * 36))
    np.testing.assert_array_equal(np.isnan(model.predict(gaps)), np.arange(N) < 4)
    assert daskgp.ExactGP(**PLAIN).fit(gaps, Y).n_rows_ == N - 4
    assert "4 rows with missing values are left out" in caplog.text


@pytest.mark.parametrize("kind", [Categorical, Coregion])
def test_new_levels_are_refused_by_name_or_taken_for_one_of_which_nothing_is_known(kind):
    kernel = kind("site", variance=2.0) * Matern32(1.5, variance=1.0, active_dims=[0])
    model = daskgp.ExactGP(kernel, mean="zero", standardize=False, **PLAIN).fit(X, Y)
    new = X.assign(site="east")
    with pytest.raises(InputError, match="'site' has 'east', which the fit has not seen; it knows"):
        model.predict(new)
    known = model.predict(X)
    mean, std = model.set_params(unseen="new").predict(new, return_std=True)
    if kind is Coregion:
        np.testing.assert_allclose(mean, 0.0, atol=1e-12)
        np.testing.assert_allclose(std, np.sqrt(2.0), rtol=1e-12)
    else:  # as each level is to the others
        B = 2.0 * (0.5 + 0.5 * np.eye(4))
        codes, x = PLACES[:, 1].astype(int), PLACES[:, :1]
        among = Matern32(1.5, variance=1.0)(x)
        K = B[codes][:, codes] * among + 0.1 * np.eye(N)
        wanted = (B[3, codes] * among) @ np.linalg.solve(K, Y)
        np.testing.assert_allclose(mean, wanted, rtol=1e-8)
    np.testing.assert_array_equal(model.predict(X), known)
    with pytest.raises(SettingError, match="unseen"):
        model.set_params(unseen="skip").predict(new)


def test_new_levels_are_taken_beside_a_kernel_within_another():
    places = X.assign(z=X["x"].to_numpy()[::-1])[["x", "z", "site"]]
    model = daskgp.ExactGP(Categorical("site") * Rotated(Matern32(ard=True)), unseen="new", **PLAIN)
    assert np.isfinite(model.fit(places, Y).predict(places.assign(site="east"))).all()


COREGION = Coregion("site") * Matern32(active_dims=[0])


@pytest.mark.parametrize("kernel", [None, COREGION], ids=["categorical", "coregion"])
def test_new_levels_of_a_store_that_grew_are_told_and_trained_on(kernel, tmp_path):
    source, store, made = (tmp_path / name for name in ("t.csv", "t.zarr", "m.zarr"))
    X.assign(y=Y).to_csv(source, index=False)
    succeed("convert", source, store, "--target", "y", "--features", "x,site")
    data = daskgp.open_dataset(store)
    daskgp.SGPR(kernel, n_inducing=9, max_iter=3, progress=False).fit(*data).save(made)
    X.assign(y=Y, site=np.where(SITE == "mid", "east", SITE)).to_csv(source, index=False)
    appended = invoke("convert", source, store, "--append").stderr
    assert f"'site' has 'east', which {store} did not have" in appended
    said = refused("update", made, store)
    assert "'site' has 'east', which the fit has not seen" in said
    assert said.endswith(
        "train again on all rows, fit(..., start=model) or daskgp update --retrain"
    )
    assert succeed("update", made, store, "--retrain")["total"] == 2 * N
    levels = daskgp.load(made).kernel_.parts[0].levels
    assert levels == ("mid", "north", "south", "east")


def test_a_kernel_that_was_chosen_is_trained_on_new_levels(tmp_path):
    store, made = tmp_path / "t.zarr", tmp_path / "m.zarr"
    daskgp.convert(X.assign(y=Y), store, target="y", features=["x", "site"])
    first = daskgp.SGPR(n_inducing=9, **PLAIN).fit(*daskgp.open_dataset(store))
    chosen = daskgp.SGPR(first.kernel_, n_inducing=9, max_iter=2, progress=False)
    chosen.fit(*daskgp.open_dataset(store)).save(made)
    daskgp.convert(X.assign(y=Y, site="east"), store, append=True)
    succeed("update", made, store, "--retrain")
    assert len(daskgp.load(made).kernel_.parts[0].levels) == 4


def test_a_fit_starts_from_a_model_of_fewer_levels(model):
    more = X.assign(site=np.where(np.arange(N) < 9, "east", SITE))  # the first in their order
    again = daskgp.ExactGP(**PLAIN).fit(more, Y, start=model)
    own, before = again.kernel_.parts[0], model.kernel_.parts[0]
    assert own.levels == ("east", "mid", "north", "south")
    np.testing.assert_allclose(own.correlation, before.correlation, rtol=1e-9)
    with pytest.raises(InputError, match=r"'site' has 'east', which .*; it knows .*--retrain"):
        daskgp.SGPR(n_inducing=9, unseen="new", **PLAIN).fit(X, Y).update(more, Y)


def test_columns_in_another_order_are_told_before_their_text_is(model):
    other = X[["site", "x"]]
    with pytest.raises(InputError, match=r"'site' where the .* with 'x': give the columns x, site"):
        model.predict(other)
    with pytest.raises(InputError, match="give the columns x, site in this order"):
        model.score(other, Y)


def test_the_command_takes_levels_that_are_new(model, tmp_path):
    store, places, out = (f"{tmp_path}/{name}" for name in ("m.zarr", "places.csv", "out.csv"))
    model.save(store)
    new = X[:5].assign(site="east")
    new.to_csv(places, index=False)
    assert "(daskgp predict --unseen new)" in refused("predict", store, places, out)
    succeed("predict", store, places, out, "--unseen", "new")
    wanted = daskgp.load(store).set_params(unseen="new").predict(new)
    np.testing.assert_allclose(pd.read_csv(out).iloc[:, -2], wanted, rtol=1e-12)


def test_ranks_beyond_the_levels_are_refused():
    kernel = Coregion("site", rank=4) * Matern32(1.5, active_dims=[0])
    with pytest.raises(SettingError, match="rank=4 for 3 levels: give at most 3, or leave rank"):
        daskgp.ExactGP(kernel, **PLAIN).fit(X, Y)
    y = np.column_stack([Y, -Y])
    kernel = Coregion("target", rank=3) * Matern32(1.5)
    with pytest.raises(SettingError, match="rank=3 for 2 levels"):
        daskgp.ExactGP(kernel, targets="joint", **PLAIN).fit(X[["x"]], y)


def test_text_of_a_grid_is_a_category_and_its_names_stay():
    y = np.sin(np.arange(6.0))[:, None] + np.arange(3.0)
    grid = xr.Dataset({"y": (("t", "site"), y)}, {"t": np.arange(6.0), "site": ["u", "v", "w"]})
    model = daskgp.ExactGP(**PLAIN).fit(grid.coords.to_dataset(), grid.y)
    found = model.predict(grid.coords.to_dataset().isel(site=[2, 0]))
    assert [*found.site.values] == ["w", "u"]
    np.testing.assert_allclose(found, y[:, [2, 0]], atol=0.5)


def test_stores_keep_levels_and_rows_of_other_stores_are_matched_by_name(model, tmp_path):
    wanted = model.predict(X)
    model.save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(loaded.predict(X), wanted)
    some = X["site"] != "mid"
    daskgp.convert(X[some], tmp_path / "t.zarr", features=["x", "site"])
    places = daskgp.data.open_inputs(str(tmp_path / "t.zarr"))
    np.testing.assert_allclose(loaded.predict(places).compute(), wanted[some], rtol=1e-12)
    grown = daskgp.SGPR(n_inducing=9, **PLAIN).fit(X, Y)
    assert grown.update(X[some], Y[some]).n_rows_ == N + some.sum()
    with pytest.raises(InputError, match="'site' has 'east', which the fit has not seen"):
        grown.update(X[:3].assign(site="east"), Y[:3])


def test_the_command_goes_from_text_to_text(model, tmp_path):
    source, store, made, out = (
        tmp_path / name for name in ("t.csv", "t.zarr", "m.zarr", "out.csv")
    )
    X.assign(y=Y).to_csv(source, index=False)
    succeed("convert", source, store, "--target", "y", "--features", "x,site")
    daskgp.ExactGP(**PLAIN).fit(*daskgp.open_dataset(store)).save(made)
    for place in (store, made):
        assert "3: mid, north, south" in " ".join(invoke("info", place).stdout.split())
    succeed("predict", made, source, out)
    found = pd.read_csv(out)
    assert [*found["site"]] == [*SITE]
    np.testing.assert_allclose(found["y_mean"], model.predict(X), rtol=1e-9)
    X.assign(site="east").to_csv(source, index=False)
    said = refused("predict", made, source, tmp_path / "no.csv")
    assert "'site' has 'east', which the fit has not seen; it knows mid, north, south" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "m.zarr",
        "out.csv",
        "t.csv",
        "t.zarr",
    ]


def test_a_start_of_levels_in_another_order_is_told_with_what_takes_it():
    start = daskgp.ExactGP(COREGION, **PLAIN).fit(X, Y)
    more = X.assign(site=np.where(np.arange(N) < 9, "east", SITE))  # the first in their order
    line = "start has the levels mid, north, south of 'site', but the rows have east, mid, north"
    with pytest.raises(SettingError, match=f"{line}.* such as by pandas.Categorical"):
        daskgp.ExactGP(COREGION, **PLAIN).fit(more, Y, start=start)
    levels = ["mid", "north", "south", "east"]
    more["site"] = pd.Categorical(more["site"], levels)
    again = daskgp.ExactGP(COREGION, **PLAIN).fit(more, Y, start=start)
    assert again.kernel_.parts[0].levels == tuple(levels)
