"""Fits of grids and tables by the names of their columns: as of the store that they convert to."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import invoke, refused, succeed

import daskgp
from daskgp.data import gridded
from daskgp.data.stores import models
from daskgp.errors import InputError, RunError, SettingError
from daskgp.fit import hyperparameters
from daskgp.fit.named import Named

DIMS = ("time", "lat", "lon")
SETTINGS = {"n_inducing": 8, "max_iter": 2, "kernel": "matern32()", "progress": False}
FIT = ("--model", "sgpr", *(f"--set={k}={v}" for k, v in SETTINGS.items() if k != "progress"))


def grid(n=6):
    rng = np.random.default_rng(n)
    coords = {
        "time": np.array(["2020-01-01", "2020-01-02", "2020-01-04"], "M8[ns]"),
        "lat": ("lat", np.linspace(-60, 60, n), {"units": "degrees_north"}),
        "lon": ("lon", np.linspace(0, 350, n + 1), {"units": "degrees_east"}),
    }
    shape = tuple(len(np.asarray(c[1] if isinstance(c, tuple) else c)) for c in coords.values())
    sst = np.sin(np.arange(np.prod(shape))).reshape(shape) + rng.normal(size=shape)
    sst[0, 1, 2] = np.nan
    data = {
        "sst": (DIMS, sst, {"units": "K"}),
        "error": (DIMS, rng.uniform(0.1, 1, shape)),
        "sea": (DIMS[1:], rng.random(shape[1:]) > 0.2),
    }
    return xr.Dataset(data, coords)


@pytest.fixture
def files(tmp_path):
    """The grid whole and in parts."""
    grid().to_netcdf(tmp_path / "g.nc")
    grid().to_zarr(tmp_path / "g.zarr", consolidated=False)
    for i in range(3):
        grid().isel(time=[i]).to_netcdf(tmp_path / f"part-{i}.nc")
    return tmp_path


def converted(folder, **more):
    """X, y of the store that the grid converts to."""
    options = {"y_std": "error", "mask": "sea", **more}
    daskgp.convert(grid(), folder / "d.zarr", "sst", **options)
    return daskgp.open_dataset(folder / "d.zarr")


def same(one, other):
    assert one.objective_ == other.objective_
    assert one.n_rows_ == other.n_rows_
    assert list(one.feature_names_in_) == list(other.feature_names_in_)
    assert one.solved_.geographic == other.solved_.geographic
    assert one.solved_.target_units == other.solved_.target_units


@pytest.mark.parametrize("name", ["g.nc", "g.zarr", "part-*.nc"])
def test_a_fit_of_a_grid_is_that_of_the_store_it_converts_to(name, files):
    names = ("--target", "sst", "--y-std", "error", "--mask", "sea", "--workers", 1)
    result = invoke("fit", files / name, files / "m.zarr", *FIT, *names)
    assert result.exit_code == 0, result.stderr
    store = files / "m.zarr" / "training"
    assert f"was converted to {store}, which is removed after the fit" in result.stderr
    assert not store.exists()
    wanted = daskgp.SGPR(**SETTINGS).fit(*converted(files))
    same(daskgp.load(files / "m.zarr"), wanted)
    assert wanted.solved_.geographic == (2, 1)
    data = grid()
    left_out = int((~data.sea | data.sst.isnull()).sum())
    assert f'"skipped": {left_out}' in result.stdout
    assert wanted.n_rows_ == data.sst.size - left_out


@pytest.mark.parametrize("kind", ["object", "lazy", "path", "paths"])
def test_estimators_take_grids_by_name_too(kind, files):
    source = {
        "object": grid(),
        "lazy": grid().chunk(time=1),
        "path": files / "g.nc",
        "paths": [files / f"part-{i}.nc" for i in range(3)],
    }[kind]
    data = grid()
    data["error"] **= 2
    if kind == "path":
        data.to_netcdf(files / "squared.nc")
        source = files / "squared.nc"
    elif kind == "paths":
        for i in range(3):
            data.isel(time=[i]).to_netcdf(files / f"part-{i}.nc")
    else:
        source = source.assign(error=source.error**2)
    names = {"y_variance": "error", "mask": "sea", "features": ["lat", "lon"]}
    model = daskgp.SGPR(**SETTINGS, store=str(files / "scratch")).fit(source, "sst", **names)
    same(model, daskgp.SGPR(**SETTINGS).fit(*converted(files, features=["lat", "lon"])))
    assert not any((files / "scratch").glob("*"))


@pytest.mark.parametrize("estimator", [daskgp.LMA, daskgp.ExpertsGP])
def test_a_method_that_keeps_rows_predicts_when_the_converted_ones_are_gone(estimator, files):
    small = {"n_support": 8} if estimator is daskgp.LMA else {"expert": "exact", "n_experts": 2}
    model = estimator(**small, optimizer=None, kernel="matern32(ard=true)", progress=False)
    model.fit(files / "g.nc", "sst", mask="sea")
    mean, std = model.predict(grid(), return_std=True)
    assert mean.dims == DIMS
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_a_data_frame_is_fitted_by_the_name_of_its_target():
    frame = grid().sst.isel(time=0).to_dataframe().reset_index().drop(columns="time")
    model = daskgp.SGPR(**SETTINGS).fit(frame, "sst")
    assert list(model.feature_names_in_) == ["lat", "lon"]
    assert model.n_rows_ == len(frame) - 1


def test_several_targets_are_named_in_a_list():
    data = grid().assign(other=grid().sst * 2.0)
    model = daskgp.SGPR(**SETTINGS).fit(data, ["sst", "other"])
    assert model.solved_.target_names == ("sst", "other")


def test_a_fit_that_broke_off_converts_again_and_goes_on(files, monkeypatch):
    fit = ("fit", files / "g.nc", files / "m.zarr", *FIT, "--target", "sst", "--workers", 1)
    solve, seen = hyperparameters.train_theta, []

    def broken(*arguments):
        solve(*arguments)
        seen.append(sorted(p.name for p in (files / "m.zarr").iterdir() if p.is_dir()))
        raise RunError("the cluster is gone")

    monkeypatch.setattr(hyperparameters, "train_theta", broken)
    assert invoke(*fit).exit_code == 1
    assert seen == [["checkpoint", "training"]]
    assert not (files / "m.zarr" / "training").exists()
    monkeypatch.undo()
    # as a kill leaves it
    zarr.create_group(str(files / "m.zarr" / "training"), attributes={"complete": False})
    result = invoke(*fit, "--resume")
    assert result.exit_code == 0, result.stderr
    again = invoke(*fit[:2], files / "whole.zarr", *fit[3:])
    assert again.exit_code == 0
    checksums = [models.read(str(files / name)).checksum for name in ("m.zarr", "whole.zarr")]
    assert checksums[0] == checksums[1]
    assert not (files / "m.zarr" / "training").exists()


def test_points_of_a_mask_are_left_out_of_places_too(files):
    sea = grid().sea
    for kind, mask in {
        "flag": sea,
        "integer": sea.astype("i1"),
        "nan": xr.where(sea, 0.0, np.nan),
    }.items():
        data = xr.Dataset({"mask": mask})
        found = daskgp.convert(data, files / f"{kind}.zarr", mask="mask")
        assert (found.rows, found.skipped) == (int(sea.sum()), int((~sea).sum()))
        X = daskgp.data.open_inputs(files / f"{kind}.zarr").compute()
        places = sea.where(sea).stack(place=("lat", "lon")).dropna("place")
        np.testing.assert_array_equal(X, np.array([*places.place.values]))


@pytest.mark.parametrize("entry", ["convert", "fit", "predict", "cli"])
def test_a_mask_of_floats_without_nan_is_refused(entry, files):
    data = grid().assign(sea=grid().sea.astype("f4"))
    (files / "g.nc").unlink()
    data.to_netcdf(files / "g.nc")
    told = "mask 'sea' of {} holds 0 and 1 as float32, of which only NaN would be left out: make bo"
    if entry == "cli":
        line = refused("convert", files / "g.nc", files / "o.zarr", "--target=sst", "--mask=sea")
        assert told.format(files / "g.nc") in line
    else:
        model = daskgp.SGPR(**SETTINGS)
        model = model.fit(grid(), "sst") if entry == "predict" else model
        run = {
            "convert": lambda: daskgp.convert(data, files / "o.zarr", "sst", mask="sea"),
            "fit": lambda: model.fit(data, "sst", mask="sea"),
            "predict": lambda: model.predict_store(data, files / "o.zarr", mask="sea"),
        }[entry]
        with pytest.raises(InputError, match=r"^mask 'sea' of .* holds 0 and 1 as float32"):
            run()
    assert not (files / "o.zarr").exists()


def test_a_mask_of_floats_with_nan_or_other_numbers_is_not_refused(monkeypatch):
    monkeypatch.setattr(gridded, "SLAB", 5)
    for values in ([[1, np.nan], [0, 1]], [[0, 1], [0.5, 0]], [[1, 1], [1, 1]]):
        gridded.refuse_float_mask(xr.DataArray(np.array(values, float), name="m"), "g")
    for mask in (np.array(False), np.eye(2, dtype=int), np.full((2, 2), np.nan)):
        gridded.refuse_float_mask(xr.DataArray(mask, name="m"), "g")
    late = xr.DataArray(np.r_[np.ones(12), 0.0], name="m")
    with pytest.raises(InputError, match="holds 0 and 1 as float64"):
        gridded.refuse_float_mask(late, "g")


REFUSED = {
    "no target": (("g.nc",), "is not a dataset store: name the column to fit with --target NAME"),
    "no target of a pattern": (("part-*.nc",), "name the column to fit with --target NAME"),
    "no target of a grid": (("g.zarr", "--mask", "sea"), "--mask names a column of a grid or a"),
    "unknown": (("g.nc", "--target", "t"), "target 't' is not in"),
    "unknown mask": (("g.nc", "--target", "sst", "--mask", "m"), "column 'm' is not in"),
    "store": (("d.zarr", "--target", "sst"), "is a dataset store, which names its own columns"),
    "errors": (
        ("g.nc", "--target", "sst", "--y-std", "error", "--ignore-errors"),
        "--ignore-errors leaves out --y-std: give one of them",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_fitted_is_said_and_leaves_nothing(case, files):
    converted(files)
    (name, *options), says = REFUSED[case]
    result = invoke("fit", files / name, files / "m.zarr", *FIT, *options)
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[-1]
    assert not (files / "m.zarr").exists()


def test_names_and_arrays_are_not_mixed(files):
    X, y = converted(files)
    fit = daskgp.SGPR(**SETTINGS).fit
    with pytest.raises(SettingError, match=r"features=\['a'\] has no effect with an array y"):
        fit(X, y, features=["a"])
    with pytest.raises(SettingError, match="y='sst' is a name, y_variance is not"):
        fit(files / "g.nc", "sst", y_variance=np.ones(3))
    with pytest.raises(InputError, match="source is a ndarray: give the path"):
        fit(np.ones((3, 2)), "sst")
    with pytest.raises(InputError, match="is a dataset store, which names its own columns"):
        fit(files / "d.zarr", "sst")
    with pytest.raises(InputError, match=r"is for grids and .* is a table"):
        daskgp.convert(grid().to_dataframe(), files / "o.zarr", "sst", mask="sea")


@pytest.mark.parametrize("form", [2, 3])
def test_a_grid_with_an_axis_x_is_no_dataset_store(form, tmp_path):
    values = np.sin(np.arange(30.0)).reshape(5, 6)
    made = xr.Dataset(
        {"sst": (("X", "Y"), values)}, {"X": np.arange(5.0), "Y": 2.0 * np.arange(6.0)}
    )
    made.to_zarr(tmp_path / "g.zarr", zarr_format=form, consolidated=False)
    model = daskgp.SGPR(**SETTINGS).fit(tmp_path / "g.zarr", "sst")
    assert list(model.feature_names_in_) == ["X", "Y"]
    model.predict_store(str(tmp_path / "g.zarr"), str(tmp_path / "m.zarr"))
    found = xr.open_zarr(tmp_path / "m.zarr")["mean"]
    np.testing.assert_allclose(found, model.predict(made.drop_vars("sst")), rtol=1e-9)


def test_plans_and_scores_take_columns_by_name(files):
    names = {"mask": "sea", "features": ["lat", "lon"]}
    model = daskgp.SGPR(**SETTINGS).fit(files / "g.nc", "sst", **names)
    X, y = converted(files, features=["lat", "lon"])
    assert model.plan(grid(), "sst", y_variance="error", **names) == model.plan(X, y)
    assert model.score(files / "g.zarr", "sst", mask="sea") == model.score(X, y)
    noise = {"y_variance": "error", "sample_weight": "weight"}
    own = np.sqrt(zarr.open_group(files / "d.zarr")["y_variance"][...])
    wanted = model.score(X, y, own, y_variance=own)
    twice = grid().assign(weight=grid().error)
    assert model.score(twice, "sst", mask="sea", **noise) == pytest.approx(wanted, rel=1e-12)
    with pytest.raises(SettingError, match="mask='sea' has no effect with an array y"):
        model.score(X, y, mask="sea")


def test_names_such_as_x0_are_found_in_any_order_and_never_swapped(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x0": rng.normal(size=40), "x1": rng.normal(size=40)})
    frame["y"] = np.sin(3 * frame.x0) + 0.1 * frame.x1
    frame.to_csv(tmp_path / "train.csv", index=False)
    frame[["x1", "x0", "y"]].assign(more=1.0).to_csv(tmp_path / "test.csv", index=False)
    model = daskgp.ExactGP("rbf()", optimizer=None).fit(tmp_path / "train.csv", "y")
    wanted = model.score(frame[["x0", "x1"]].to_numpy(), frame.y.to_numpy())
    assert model.score(tmp_path / "test.csv", "y") == pytest.approx(wanted, rel=1e-9)
    with pytest.raises(InputError, match="give the columns x0, x1 in this order"):
        model.predict(frame[["x1", "x0"]])
    np.savez(tmp_path / "test.npz", X=frame[["x0", "x1"]], y=frame.y)
    assert model.score(tmp_path / "test.npz", "y") == pytest.approx(wanted, rel=1e-9)


def test_commands_plan_and_score_columns_by_name(files):
    names = ("--target", "sst", "--y-std", "error", "--mask", "sea")
    daskgp.SGPR(**SETTINGS).fit(*converted(files)).save(files / "m.zarr")
    stored = succeed("score", files / "m.zarr", files / "d.zarr", "--workers", 1)
    named = succeed("score", files / "m.zarr", files / "part-*.nc", *names, "--workers", 1)
    assert (named["skipped"], stored["skipped"]) == (grid().sst.size - stored["n"], 0)
    same = {"seconds": 0, "skipped": 0}
    assert {**named, **same} == pytest.approx({**stored, **same}, rel=1e-9)
    planned = succeed("plan", files / "g.nc", *FIT, *names, "--json")
    assert planned == succeed("plan", files / "d.zarr", *FIT, "--json")
    assert "name the column to fit with --target NAME" in refused("plan", files / "g.nc", *FIT)
    own = succeed("score", files / "m.zarr", files / "part-*.nc", *names[2:], "--workers", 1)
    assert {**own, "seconds": 0} == {**named, "skipped": own["skipped"], "seconds": 0}
    told = refused("plan", files / "g.nc", *FIT, "--mask", "sea")
    assert "--mask names a column of a grid or a table: give its --target too" in told


def test_a_target_without_values_is_named_with_its_file(tmp_path):
    table = pd.DataFrame({"x": np.arange(9.0), "yield": np.nan, "low": 1.0, "high": 2.0})
    table.to_csv(tmp_path / "t.csv", index=False)
    line = f"target 'yield' of {tmp_path / 't.csv'} is empty in all 9 rows: name another column"
    told = refused("fit", tmp_path / "t.csv", tmp_path / "m.zarr", "--target", "yield", *FIT)
    assert line in told
    with pytest.raises(InputError, match=r"no usable rows: target 'yield' of .*t\.csv is empty"):
        daskgp.SGPR(**SETTINGS).fit(tmp_path / "t.csv", "yield", features=["x"])
    rows = Named(table, "yield", ["x"], lower="low", upper="high")  # which have values between
    with rows.converted(str(tmp_path / "d.zarr")) as (X, _, _):
        assert len(X) == 9
