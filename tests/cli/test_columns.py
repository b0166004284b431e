"""Columns beside the target that likelihoods take, from csv to csv."""

import numpy as np
import pytest
import xarray as xr
import zarr
from sklearn.base import clone

import daskgp
from daskgp.cli import main
from daskgp.errors import InputError, StoreError
from tests.commands import invoke, refused, succeed

pd = pytest.importorskip("pandas")


@pytest.mark.slow
def test_counts_with_an_exposure_become_rates(tmp_path):
    rng = np.random.default_rng(0)
    X, people = rng.uniform(size=(60, 2)), rng.uniform(0.5, 40.0, 60).round(2)
    cases = rng.poisson(people * np.exp(0.5 * np.sin(6 * X[:, 0]))).astype(float)
    table = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "cases": cases, "people": people})
    table[:45].to_csv(tmp_path / "a.csv", index=False)
    table[45:].to_csv(tmp_path / "b.csv", index=False)
    table[["u", "v"]].to_csv(tmp_path / "places.csv", index=False)
    a, b, model = (tmp_path / name for name in ("a.csv", "b.csv", "m.zarr"))
    columns, store = ("--target", "cases", "--exposure", "people"), tmp_path / "a.zarr"
    settings = ("--model", "sgpr", "--set", "likelihood=poisson", "--set", "n_inducing=9")
    settings += ("--set", "optimizer=null")
    succeed("convert", a, store, *columns)
    succeed("fit", store, model, *settings)
    succeed("predict", model, tmp_path / "places.csv", tmp_path / "rates.csv")
    rates = pd.read_csv(tmp_path / "rates.csv")
    loaded = daskgp.load(str(model))
    mean = loaded.predict(X, include_noise=True)
    np.testing.assert_allclose(rates["cases_mean"], mean)
    arrays = X[:45], cases[:45]
    named = clone(loaded).fit(str(a), "cases", exposure="people")
    assert named.score(*arrays, exposure=people[:45]) == loaded.score(*arrays, exposure=people[:45])
    found = succeed("score", model, b, *columns)
    there = loaded.predict(X[45:], include_noise=True, exposure=people[45:])
    assert np.isclose(found["rmse"], np.sqrt(np.mean((cases[45:] - there) ** 2)))
    line = refused("score", model, b, "--target", "cases")
    assert "the rows of the fit had exposure, and these have none" in line
    succeed("convert", b, tmp_path / "b.zarr", *columns)
    assert succeed("update", model, tmp_path / "b.zarr", "--hold-hyperparameters")["total"] == 60
    succeed("fit", a, tmp_path / "direct.zarr", *columns, *settings)
    assert daskgp.load(str(tmp_path / "direct.zarr")).objective_ == loaded.objective_
    line = refused("fit", a, tmp_path / "no.zarr", *columns, "--model", "sgpr")
    assert "exposure is given, and SGPR with likelihood='gaussian' does not take it" in line


@pytest.mark.parametrize("how", ["named", "converted"])
def test_rates_are_told_where_rows_have_the_exposure_that_the_fit_took(how, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"u": rng.uniform(size=30), "people": rng.uniform(0.5, 40.0, 30)})
    table["cases"] = rng.poisson(table.people)
    source, store, model = (tmp_path / name for name in ("a.csv", "a.zarr", "m.zarr"))
    table.to_csv(source, index=False)
    table[["u"]].to_csv(tmp_path / "places.csv", index=False)
    columns = ("--target", "cases", "--features", "u", "--exposure", "people")
    settings = ("--model", "sgpr", "--set", "n_inducing=5", "--set", "likelihood=poisson")
    succeed("convert", source, store, *columns)
    rows = (source, model, *columns) if how == "named" else (store, model)
    succeed("fit", *rows, *settings, "--set", "optimizer=null")
    says = "exposure is not given, so predictions are for exposure 1: give exposure={0!r} "
    says += "(--exposure {0}) for that of each row, or exposure=1"
    for i, (places, given, column) in enumerate(
        (
            (source, (), "people"),
            (store, (), "exposure"),
            (source, ("--exposure", "people"), None),
            (source, ("--exposure", "1"), None),
            (store, ("--exposure", "people"), None),
            (tmp_path / "places.csv", (), None),
        )
    ):
        told = invoke("predict", model, places, tmp_path / f"out{i}{places.suffix}", *given)
        assert told.exit_code == 0
        warned = [line for line in told.stderr.splitlines() if line.startswith("Warning: exposure")]
        assert warned == ([] if column is None else ["Warning: " + says.format(column)])


def test_a_model_in_the_place_of_data_is_told(rates, tmp_path):
    model, new = tmp_path / "m.zarr", tmp_path / "no.zarr"
    for command in (
        ("fit", model, new, "--target", "cases"),
        ("fit", model, new, "--model", "sgpr"),
        ("predict", model, model, new),
        ("convert", model, new, "--target", "cases"),
    ):
        assert f"{model} is a model store: give data in its place" in refused(*command)
    assert not new.exists()


@pytest.mark.parametrize(
    ("target", "counted", "used"), [("heat", "rows", 36), ("heat,cold", "values", 75)]
)
def test_a_fit_counts_what_it_leaves_out_of_a_table(target, counted, used, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"u": rng.uniform(size=40)})
    table = table.assign(heat=np.sin(6 * table.u), cold=np.cos(6 * table.u))
    table.loc[:2, "heat"] = table.loc[9, "u"] = np.nan
    table.to_csv(tmp_path / "a.csv", index=False)
    given = "--target", target, "--features", "u", "--model", "exact"
    found = succeed("fit", tmp_path / "a.csv", tmp_path / "m.zarr", *given)
    assert (found[counted], found["skipped"]) == (used, 40 * len(target.split(",")) - used)


@pytest.mark.slow
def test_a_table_is_compared_with_the_target_of_the_model(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(size=(60, 2)), columns=["u", "v"])
    table = table.assign(site="S1", heat=np.sin(6 * table.u))
    table[:40].drop(columns="site").to_csv(tmp_path / "a.csv", index=False)
    table[40:].to_csv(tmp_path / "b.csv", index=False)
    model, test = tmp_path / "m.zarr", tmp_path / "b.csv"
    succeed("fit", tmp_path / "a.csv", model, "--target", "heat", "--model", "exact")
    for command in (("score",), ("check", "--json")):
        named = succeed(*command, model, test, "--target", "heat")
        found = succeed(*command, model, test)
        assert np.isclose(named["rmse"], found["rmse"], rtol=1e-9)
    rmse = daskgp.load(str(model)).predict(table[["u", "v"]][40:].to_numpy()) - table.heat[40:]
    assert np.isclose(found["rmse"], np.sqrt(np.mean(rmse**2)))
    table.drop(columns="heat").to_csv(test, index=False)
    for command in ("score", "check", "report"):
        line = refused(command, model, test)
        assert f"target 'heat' is not in {test}, which has u, v, site: name one of these" in line
        assert "with --target, or rename a column" in line
    xr.Dataset(coords={"u": [1.0], "v": [1.0]}).to_netcdf(tmp_path / "places.nc")
    line = refused("score", model, tmp_path / "places.nc")
    assert "which has no columns: choose a source that has it" in line
    table.assign(heat=np.nan).to_csv(tmp_path / "none.csv", index=False)
    given = ("--target", "heat", "--features", "u,v", "--model", "exact")
    line = invoke("fit", tmp_path / "none.csv", tmp_path / "no.zarr", *given).stderr
    assert "is empty in all 60 rows: name another column, or give rows with values" in line
    line = refused("fit", tmp_path / "b.csv", tmp_path / "no.zarr", "--model", "exact")
    assert "name the column to fit with --target NAME" in line
    table.to_csv(test, index=False)
    line = refused("fit", test, tmp_path / "no.zarr", "--model", "exact", "--target", "heat")
    assert "row 1 holds 'S1'" in line
    category = "(features= in Python); named among them, it is a category"
    assert line.endswith(f"naming the features to use, with --features u,v {category}")
    given = ("--target", "heat", "--features", "u,v", "--model", "exact", "--set", "max_iter=1")
    assert succeed("fit", test, tmp_path / "yes.zarr", *given)["rows"] == len(table)


@pytest.fixture
def rates(tmp_path):
    """A model of rates, places with a number of people in a csv, and what these are."""
    rng = np.random.default_rng(0)
    X, people = rng.uniform(size=(30, 2)), rng.uniform(0.5, 40.0, 30).round(2)
    places = pd.DataFrame({"u": X[:, 0], "v": X[:, 1]})
    cases = pd.Series(rng.poisson(people * np.exp(X[:, 0])).astype(float), name="cases")
    model = daskgp.SGPR("rbf", n_inducing=9, likelihood="poisson", optimizer=None, progress=False)
    model.fit(places, cases, exposure=people).save(str(tmp_path / "m.zarr"))
    places.assign(people=people).to_csv(tmp_path / "people.csv", index=False)
    return model, pd.read_csv(tmp_path / "people.csv")


def test_new_counts_have_the_exposure_of_a_column(rates, tmp_path):
    loaded, places = rates
    X, people = places[["u", "v"]], places["people"].to_numpy()
    more = ("--exposure", "people", "--quantiles", "0.05,0.9", "--exceedance", "8")
    succeed("predict", tmp_path / "m.zarr", tmp_path / "people.csv", tmp_path / "many.csv", *more)
    many = pd.read_csv(tmp_path / "many.csv")
    names = [f"cases_{what}" for what in ("mean", "std", "q0.05", "q0.9", "exceedance")]
    new = {"include_noise": True, "exposure": people}
    wanted = loaded.predict(X, return_std=True, quantiles=(0.05, 0.9), **new)
    over = loaded.predict_exceedance(X, 8.0, **new)
    np.testing.assert_allclose(many[names], np.column_stack([*wanted, over]), rtol=1e-12)


def test_new_counts_in_stores_have_the_exposure_of_an_array_or_a_variable(rates, tmp_path):
    loaded, source = rates
    own = {"include_noise": True, "exposure": source["people"].to_numpy()}
    wanted = loaded.predict(source[["u", "v"]], **own)
    places, out = str(tmp_path / "places.zarr"), str(tmp_path / "out.zarr")
    daskgp.convert(str(tmp_path / "people.csv"), places, exposure="people")
    loaded.predict_store(places, out, exposure="people")
    np.testing.assert_allclose(zarr.open_group(out)["mean"][:], wanted)
    with pytest.raises(StoreError, match="were made with exposure people, but this run has none"):
        loaded.predict_store(places, out, resume=True)
    grid = loaded.make_grid({"u": 0.5, "v": 0.5})
    grid["people"] = ("u", np.arange(1.0, 1.0 + grid.sizes["u"]))
    loaded.predict_store(grid, str(tmp_path / "map.zarr"), exposure="people")
    there = loaded.predict(grid[["u", "v"]], include_noise=True, exposure=grid["people"])
    np.testing.assert_allclose(zarr.open_group(tmp_path / "map.zarr")["mean"][:], there)
    with pytest.raises(InputError, match="variable 'nobody' is not in the xarray object"):
        loaded.predict_store(grid, str(tmp_path / "no.zarr"), exposure="nobody")
    line = refused(
        "predict", tmp_path / "m.zarr", places, tmp_path / "no.zarr", "--exposure", "nobody"
    )
    assert "convert its source with --exposure nobody" in line
    line = refused("predict", tmp_path / "m.zarr", places, tmp_path / "no.zarr", "--trials", "3")
    assert "takes exposure, offset beside y, not 'trials'" in line


SOURCES = ["convert", "fit", "plan", "score", "check", "report", "cross-validate", "interpolate"]


@pytest.mark.parametrize("command", SOURCES)
def test_commands_name_columns_of_a_source_alike(command):
    own, of_fit = (options_of(main.commands[name]) for name in (command, "fit"))
    names = "--features --y-std --y-variance --weight --trials --exposure --offset --lower --upper"
    names += " --geographic --dates --fill --target --mask"
    for name in names.split():
        assert name in own
        differs = name in ("--target", "--features", "--mask")
        assert differs or own[name] == of_fit[name], name


def options_of(command):
    """Return the help of options by their names."""
    named = [one for one in command.params if hasattr(one, "help")]
    return {option: one.help for one in named for option in one.opts}
