"""The command cross-validate: the scores of ``daskgp.cross_validate``, of a table or a store."""

import json

import numpy as np
import pandas as pd
import pytest

import daskgp
from tests.commands import Page, invoke, refused, succeed

FEATURES = ["lon", "lat", "day"]
FITTED = ("--target", "temp", "--model", "exact", "--set", "max_iter=3")


def stations(places=12, days=6):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "station": np.repeat([f"st{i}" for i in range(places)], days),
            "lon": np.repeat(rng.uniform(5, 9, places), days),
            "lat": np.repeat(rng.uniform(45, 48, places), days),
            "day": np.tile(np.arange(days, dtype=float), places),
        }
    )
    noise = 0.1 * rng.standard_normal(len(table))
    return table.assign(temp=np.sin(table.lon) + 0.1 * table.day + noise)


@pytest.fixture
def csv(tmp_path):
    stations().to_csv(tmp_path / "stations.csv", index=False)
    return tmp_path / "stations.csv"


def by_hand(**how):
    table, model = stations(), daskgp.ExactGP(max_iter=3, progress=False)
    return daskgp.cross_validate(model, table[FEATURES], table.temp, **how)


def test_rows_of_a_station_are_held_out_together(csv):
    found = succeed("cross-validate", csv, *FITTED, "--groups", "station", "--folds", 4, "--json")
    wanted = by_hand(groups=stations().station.to_numpy(), folds=4)
    assert found["scheme"] == "groups"
    assert found["pooled"] == pytest.approx(wanted.pooled, rel=1e-6)
    assert [row["rows"] for row in found["folds"][:4]] == [*wanted.rows]


def test_a_column_of_groups_is_a_feature_only_where_it_is_named():
    table = stations().assign(station=np.repeat(np.arange(12.0), 6))
    model = daskgp.ExactGP(max_iter=2, progress=False)
    given = {"groups": "station", "folds": 3}
    alone = daskgp.cross_validate(model, table, "temp", **given)
    without = daskgp.cross_validate(model, table, "temp", features=FEATURES, **given)
    beside = daskgp.cross_validate(model, table, "temp", features=[*FEATURES, "station"], **given)
    assert alone.pooled == without.pooled
    assert alone.pooled["rmse"] != beside.pooled["rmse"]
    labelled = daskgp.cross_validate(
        model, table[FEATURES], table.temp, groups=table.station.to_numpy(), folds=3
    )
    assert alone.pooled == pytest.approx(labelled.pooled, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "how"),
    [
        (("--blocks", "lon=1,lat=1"), {"blocks": {"lon": 1.0, "lat": 1.0}}),
        (("--blocks", "60km"), {"blocks": "60 km"}),
        (("--blocks", "lon,lat"), {"blocks": ["lon", "lat"]}),
        (("--time", "day"), {"time": "day"}),
        (("--folds", "loo"), {"folds": "loo"}),
        (("--seed", 3, "--max-rows", 30), {"random_state": 3, "max_rows": 30}),
    ],
    ids=["blocks", "km", "boxes", "time", "loo", "random"],
)
def test_folds_are_those_of_the_function(csv, here, options, how):
    columns = ("--features", ",".join(FEATURES))
    folds = () if "folds" in how else ("--folds", 3)
    found = succeed("cross-validate", csv, *FITTED, *columns, *folds, *options, "--json")
    wanted = by_hand(**{"folds": 3, **how})
    assert found["pooled"]["rmse"] == pytest.approx(wanted.pooled["rmse"], rel=1e-6)


def test_a_store_and_several_targets_have_tables(csv, here, tmp_path):
    table = stations()
    table.assign(wind=-table.temp).to_csv(csv, index=False)
    both = ("--target", "temp,wind", "--features", "lon,lat,day")
    assert succeed("convert", csv, tmp_path / "store.zarr", *both)["rows"] == 72
    how = ("--model", "exact", "--set", "max_iter=3", "--folds", 3)
    shown = invoke("cross-validate", tmp_path / "store.zarr", *how)
    assert shown.exit_code == 0
    assert "by target" in shown.stdout
    assert "wind" in shown.stdout
    told = succeed(
        "cross-validate", csv, *both, *how, "--json", "--predictions", tmp_path / "p.zarr"
    )
    assert {*told["targets"]} == {"temp", "wind"}
    assert told["predictions"] == str(tmp_path / "p.zarr")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--groups", "staton"),
            "groups='staton' is not a column of the source: choose among station",
        ),
        (("--groups", "station", "--time", "day"), "each make folds of their own"),
        (("--folds", "many", "--groups", "station"), "give a number, or 'loo'"),
        (("--folds", "2.5", "--groups", "station"), "a whole number"),
        (("--metrics", "rmsee", "--model", "exact", "--groups", "station"), "choose one of"),
        (("--blocks", "100 miles"), "such as 20 or '100km'"),
        (("--features", "day", "--blocks", "100km"), "not known to be longitude and latitude"),
        (
            ("--features", "lon,lat", "--time", "hour"),
            "time='hour' is not a column of the source: choose among station",
        ),
        (("--features", "lon,lat", "--blocks", "hour=2"), "blocks='hour' is not a column of the"),
        (("--features", "lon,lat", "--groups", "sta"), "groups='sta' is not a column of the"),
        (("--features", "lon,lat", "--time", "station", "--groups", "station"), "give one of them"),
        (("--report", "nowhere/r.html", "--groups", "station"), "there is no folder"),
        (("--features", "lon,lat", "--time", "station"), "'station' holds text"),
        (("--features", "lon,lat", "--blocks", "station=2"), "give it as groups"),
        (("--figures", "pyproject.toml", "--groups", "station"), "is a file: give the name"),
        (("--figures", "s3://b/f", "--groups", "station"), "is not on this machine"),
        (("--report", ".", "--groups", "station"), "--report . is a folder"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(csv, here, options, said):
    assert said in refused("cross-validate", csv, "--target", "temp", *options)


def test_auto_is_said_to_be_a_method_and_no_search(csv, here):
    told = " ".join(invoke("cross-validate", "--help").stdout.split())
    assert "auto (exact for up to 2,000 rows, else vecchia)" in told
    assert "which chooses" not in told
    given = ("--target", "temp", "--features", "lon,lat", "--set", "time_budget=10")
    for named in ((), ("--model", "auto")):
        line = refused("cross-validate", csv, *given, *named)
        assert "time_budget is a setting of the search of `daskgp fit`" in line
        assert "auto is exact here" in line
    (csv.parent / "auto.toml").write_text('model = "auto"\n[settings]\ncandidates = ["sgpr"]\n')
    for name, instead in (("time", "give --time in"), ("metric", "name the scores by --metrics")):
        assert instead in refused("cross-validate", csv, *given[:4], "--set", f"{name}=x")
    line = refused("cross-validate", csv, *given[:4], "--config", csv.parent / "auto.toml")
    assert "candidates is a setting of the search" in line
    assert "of model 'exact'" in refused("cross-validate", csv, *given, "--model", "exact")


def test_rows_without_a_group_are_told(csv, here):
    table = stations()
    table["site"] = np.repeat(np.arange(12.0), 6)
    table.loc[5, "site"] = np.nan
    table.drop(columns="station").to_csv(csv, index=False)
    told = invoke("cross-validate", csv, *FITTED, "--groups", "site", "--json")
    assert "1 of 72 rows have no 'site' and are left out" in told.stderr
    assert sum(row["rows"] for row in json.loads(told.stdout)["folds"][:5]) == 71


PLACES = ("--features", "lon,lat")


def test_time_may_be_a_column_that_is_no_feature(csv, here):
    given = (*FITTED, *PLACES, "--time", "day", "--folds", 3, "--json")
    found = succeed("cross-validate", csv, *given)
    table, model = stations(), daskgp.ExactGP(max_iter=3, progress=False)
    ends = (1, 2, 4, 6)  # days of parts of about equally many rows
    for i, row in enumerate(found["folds"][:3]):
        past = table[table.day < ends[i]]
        now = table[(table.day >= ends[i]) & (table.day < ends[i + 1])]
        assert (row["trained"], row["rows"]) == (len(past), len(now))
        fitted = daskgp.ExactGP(max_iter=3, progress=False)
        fitted.fit(past[["lon", "lat"]], past.temp)
        error = fitted.predict(now[["lon", "lat"]]) - now.temp
        assert row["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    how = {"features": ["lon", "lat"], "time": "day", "folds": 3}
    again = daskgp.cross_validate(model, table, "temp", **how)
    assert again.pooled == pytest.approx(found["pooled"], rel=1e-6)


@pytest.mark.slow
def test_blocks_may_be_along_columns_that_are_no_features(csv, here):
    given = ("--folds", 3, "--json")
    found = succeed("cross-validate", csv, *FITTED, *PLACES, "--blocks", "day=2", *given)
    assert [row["rows"] for row in found["folds"][:3]] == [24, 24, 24]
    pairs = stations().assign(pair=lambda t: t.day // 2)
    pairs.drop(columns="day").to_csv(csv, index=False)
    wanted = succeed("cross-validate", csv, *FITTED, *PLACES, "--groups", "pair", *given)
    assert found["pooled"] == pytest.approx(wanted["pooled"], rel=1e-6)
    stations().to_csv(csv, index=False)
    weighted = ("--weight", "day", "--blocks", "day=2")
    pairs.assign(day=pairs.day + 1).to_csv(csv, index=False)
    apart = succeed("cross-validate", csv, *FITTED, *PLACES, *weighted, *given)
    assert apart["pooled"]["rmse"] != pytest.approx(found["pooled"]["rmse"])
    stations().to_csv(csv, index=False)
    both = succeed("cross-validate", csv, *FITTED, *PLACES, "--blocks", "day=2,lon=100", *given)
    assert both["pooled"] == pytest.approx(found["pooled"], rel=1e-6)


@pytest.mark.slow
def test_errors_and_dates_of_rows_are_those_of_a_conversion(csv, here):
    table = stations().assign(error=np.linspace(0.05, 0.3, 72))
    table["day"] = 20210101 + table.day.astype(int)
    table.assign(variance=table.error**2).to_csv(csv, index=False)
    features = ("--features", "lon,lat,day", "--folds", 3, "--json")
    by_std = succeed("cross-validate", csv, *FITTED, *features, "--y-std", "error")
    by_variance = succeed("cross-validate", csv, *FITTED, *features, "--y-variance", "variance")
    assert by_std["pooled"] == pytest.approx(by_variance["pooled"], rel=1e-9)
    dated = succeed("cross-validate", csv, *FITTED, *features, "--y-std", "error", "--dates", "day")
    store = csv.with_name("store.zarr")
    how = ("--target", "temp", "--features", "lon,lat,day", "--y-std", "error", "--dates", "day")
    succeed("convert", csv, store, *how)
    fitted = ("--model", "exact", "--set", "max_iter=3", "--folds", 3, "--json")
    assert succeed("cross-validate", store, *fitted)["pooled"] == pytest.approx(dated["pooled"])


def test_a_report_and_figures_show_the_held_out_rows(csv, here, tmp_path):
    report, figures = tmp_path / "r.html", tmp_path / "figures"
    how = ("--groups", "station", "--folds", 3, "--report", report, "--figures", figures)
    columns = (*PLACES, "--geographic", "lon,lat")
    found = succeed("cross-validate", csv, *FITTED, *columns, *how, "--json")
    assert found["report"] == str(report)
    names = ["pit.png", "calibration.png", "residuals.png"]
    assert found["figures"] == [str(figures / name) for name in names]
    assert sorted(path.name for path in figures.iterdir()) == sorted(names)
    page = Page(report.read_text())
    assert not page.open
    for text in ("Scores by fold", "72 values held out, in groups", "Calibration", "Settings"):
        assert text in page.text
    assert f"{found['folds'][0]['rmse']:.4g}" in page.text
    assert f"{found['pooled']['rmse']:.4g}" in page.text
    images = [attrs["alt"] for tag, attrs in page.tags if tag == "img"]
    assert len(images) == 3
    assert "Map of the residuals" in images


def test_the_rows_that_are_kept_for_figures_are_held_out_ones():
    found = by_hand(folds=3)
    assert found.counts.sum() == 72
    assert found.feature_names == tuple(FEATURES)
    X = stations()[FEATURES].to_numpy()
    np.testing.assert_allclose(*(rows[np.lexsort(rows.T)] for rows in (found.sample.X, X)))
    error = found.sample.y - found.sample.mean
    assert np.sqrt(np.mean(error**2)) == pytest.approx(found.pooled["rmse"])


@pytest.mark.slow
def test_the_method_without_a_name_is_that_of_interpolate(csv, here, tmp_path, monkeypatch):
    how = ("--target", "temp", "--groups", "station", "--folds", 3, "--set", "max_iter=3")
    for model in ((), ("--model", "auto")):
        told = invoke("cross-validate", csv, *how, *model, "--json")
        named = succeed("cross-validate", csv, *how, "--model", "exact", "--json")
        assert json.loads(told.stdout)["pooled"] == named["pooled"]
        assert ("without --model, the method is exact" in told.stderr) == (not model)
    monkeypatch.setattr("daskgp.maps.kriging.EXACT", 71)
    told = invoke("cross-validate", csv, *how, "--json")
    assert "without --model, the method is vecchia" in told.stderr
    mapped = ("interpolate", csv, tmp_path / "m.nc", "--target", "temp", "--features", "lon,lat")
    found = succeed(*mapped, "--resolution", "lon=1,lat=1")
    assert found["method"] == "VecchiaGP"
    columns = ("--target", "temp", "--features", "lon,lat,day")
    succeed("convert", csv, tmp_path / "store.zarr", *columns)
    told = invoke("cross-validate", tmp_path / "store.zarr", "--set", "max_iter=3", "--folds", 2)
    assert told.exit_code == 0
    assert "without --model, the method is vecchia" in told.stderr


@pytest.mark.slow
def test_a_table_of_many_folds_ends_with_the_scores_of_all_rows(csv, here):
    how = ("--features", "lon,lat", "--folds", 24, "--set", "max_iter=1")
    found = succeed("cross-validate", csv, "--target", "temp", "--model", "exact", *how, "--json")
    told = invoke("cross-validate", csv, "--target", "temp", "--model", "exact", *how)
    header, *lines = told.stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == [*map(str, range(20)), "...", "mean", "error", "all"]
    assert lines[20] == "... 4 more"
    assert float(lines[-1].split()[1]) == pytest.approx(found["pooled"]["rmse"], rel=1e-3)
    assert lines[-1].split()[header.split().index("rows")] == "72"
    assert len(found["folds"]) == 26
