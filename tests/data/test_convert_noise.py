"""Conversion of columns with errors of the target and weights of the rows."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import invoke, succeed

import daskgp
from daskgp.errors import InputError

N = 50


@pytest.fixture
def table(tmp_path):
    """A csv file with a column of standard errors and one of weights."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.uniform(0.1, 2.0, N) for name in ("x", "y", "err", "w")})
    frame.to_csv(tmp_path / "t.csv", index=False, float_format="%.17g")
    return frame, tmp_path / "t.csv"


def stored(url):
    group = zarr.open_group(url, mode="r")
    return {name: group[name][...] for name in ("X", "y", "y_variance", "weight") if name in group}


def test_standard_errors_are_kept_as_variances(table, tmp_path):
    frame, source = table
    url = tmp_path / "out.zarr"
    done = succeed("convert", source, url, "--target", "y", "--y-std", "err", "--weight", "w")
    assert done["features"] == ["x"]
    found = stored(url)
    np.testing.assert_array_equal(found["X"][:, 0], frame["x"])
    np.testing.assert_array_equal(found["y_variance"], frame["err"] ** 2)
    np.testing.assert_array_equal(found["weight"], frame["w"])
    fitted = daskgp.ExactGP(optimizer=None, progress=False).fit(*daskgp.open_dataset(url))
    X, y = frame[["x"]].to_numpy(), frame["y"].to_numpy()
    errors = {"y_variance": frame["err"] ** 2, "sample_weight": frame["w"]}
    own = daskgp.ExactGP(optimizer=None, progress=False).fit(X, y, **errors)
    np.testing.assert_allclose(fitted.predict(X), own.predict(X), rtol=1e-9)
    assert "y_variance and weight" in invoke("info", url).output


def test_variances_are_kept_as_they_are_and_rows_are_added(table, tmp_path):
    frame, source = table
    url = str(tmp_path / "out.zarr")
    given = {"target": "y", "y_variance": "err"}
    daskgp.convert(source, url, features="x", block_rows=30, **given)
    daskgp.convert(source, url, append=True, **given)
    np.testing.assert_array_equal(stored(url)["y_variance"], np.tile(frame["err"], 2))
    np.testing.assert_array_equal(stored(url)["y"], np.tile(frame["y"], 2))
    daskgp.convert(source, url, append=True)  # with the columns that the store remembers
    np.testing.assert_array_equal(stored(url)["y_variance"], np.tile(frame["err"], 3))
    group = zarr.open_group(url)
    del group.attrs["converted_from"]
    with pytest.raises(InputError, match=r"has an array y_variance: give y_std= or y_variance="):
        daskgp.convert(source, url, target="y", append=True)
    with pytest.raises(InputError, match=r"has no array weight: leave out weight="):
        daskgp.convert(source, url, append=True, weight="w", **given)


def test_errors_of_a_grid_follow_its_points(tmp_path):
    rng = np.random.default_rng(1)
    values = rng.uniform(1, 2, (4, 5))
    values[1, 2] = np.nan
    dims, coords = ("lat", "lon"), {"lat": np.arange(4.0), "lon": np.arange(5.0)}
    errors = rng.uniform(0.1, 1, (4, 5))
    xr.Dataset({"sst": (dims, values), "e": (dims, errors)}, coords).to_netcdf(tmp_path / "g.nc")
    url = tmp_path / "g.zarr"
    done = daskgp.convert(tmp_path / "g.nc", url, target="sst", y_std="e")
    assert (done.rows, done.skipped) == (19, 1)
    known = ~np.isnan(values)
    np.testing.assert_allclose(sorted(stored(url)["y_variance"]), sorted(errors[known] ** 2))
    order = np.lexsort(stored(url)["X"].T[::-1])
    np.testing.assert_allclose(stored(url)["y_variance"][order], errors[known] ** 2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"y_std": "err"}, "y_std='err' describes a target, but there is none: give target="),
        ({"target": "y", "y_std": "nobody"}, "nobody"),
        ({"target": "y", "y_std": "err", "weight": "err"}, "'err' has two uses"),
        (
            {"target": "y", "y_std": "err", "y_variance": "w"},
            "describe the same error: give only one of them",
        ),
        (
            {"target": ["y", "x"], "y_std": "err"},
            "1 column for 2 targets: name one for each target",
        ),
        (
            {"target": "y", "features": ["x", "w"], "weight": "w"},
            "'w' is used for the noise",
        ),
        ({"target": "y", "exposure": "y"}, "'y' is used for the noise, a mask or a likelihood"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, says, table, tmp_path):
    url = tmp_path / "out.zarr"
    with pytest.raises(InputError, match=says):
        daskgp.convert(table[1], url, **given)
    assert not url.exists()


@pytest.mark.parametrize("argument", ["y_std", "y_variance", "weight"])
@pytest.mark.parametrize(
    ("bad", "what"),
    [(-1.0, "negative"), (0.0, "negative"), (np.nan, "missing"), (np.inf, "infinite")],
)
def test_impossible_errors_are_refused_with_the_number_of_rows(
    bad, what, argument, table, tmp_path
):
    frame, url = table[0], tmp_path / "out.zarr"
    if argument == "weight" and bad == 0.0:
        pytest.skip("a weight of 0 leaves a row out")
    if argument != "weight" and what == "negative":
        what = "zero or negative"
    frame.loc[[3, 4], "err"] = bad
    says = f"{argument}='err' is {what} in 2 rows of those from 1 to 50: leave these rows out, or"
    with pytest.raises(InputError, match=says):
        daskgp.convert(frame, url, "y", "x", **{argument: "err"})
    frame.loc[4, "err"] = 1.0
    with pytest.raises(InputError, match=f"is {what} in 1 row of those from 1 to 20"):
        daskgp.convert(frame, url, "y", "x", block_rows=20, **{argument: "err"})
    assert not url.exists()


def test_errors_may_be_missing_where_rows_are_left_out_of_a_fit(table, tmp_path):
    frame, url = table[0], tmp_path / "out.zarr"
    frame.loc[2, ["err", "y"]] = np.nan
    frame.loc[[5, 6], ["err", "w"]] = np.nan, 0.0
    daskgp.convert(frame, url, "y", "x", y_std="err", weight="w")
    model = daskgp.ExactGP(optimizer=None, progress=False).fit(*daskgp.open_dataset(url))
    assert model.n_rows_ == N - 3


@pytest.mark.parametrize("name", ["y_std", "err", "sst_error", "y_err_low", "Uncertainty"])
def test_a_column_that_looks_like_errors_is_named_where_it_becomes_a_feature(
    name, table, tmp_path, caplog
):
    frame = table[0].rename(columns={"err": name})[["x", name, "y"]]
    daskgp.convert(frame, tmp_path / "a.zarr", "y")
    says = (
        f"'{name}' becomes a feature: if it is the error of the target, name it by --y-std {name}"
    )
    assert [line for line in caplog.messages if line.startswith(says)]
    caplog.clear()
    daskgp.convert(frame, tmp_path / "b.zarr", "y", ["x", name])
    daskgp.convert(frame, tmp_path / "c.zarr", "y", y_std=name)
    daskgp.convert(frame, tmp_path / "d.zarr")
    plain = frame.rename(columns={name: "terrain"})
    daskgp.convert(plain, tmp_path / "e.zarr", "y")
    assert not caplog.messages
