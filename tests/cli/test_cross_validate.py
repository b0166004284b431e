"""The command cross-validate: the scores of ``daskgp.cross_validate``, of a table or a store."""

import json

import numpy as np
import pandas as pd
import pytest

import daskgp
from tests.commands import invoke, refused, succeed

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
        (("--time", "day"), {"time": "day"}),
        (("--folds", "loo"), {"folds": "loo"}),
        (("--seed", 3, "--max-rows", 30), {"random_state": 3, "max_rows": 30}),
    ],
    ids=["blocks", "time", "loo", "random"],
)
def test_folds_are_those_of_the_function(csv, options, how):
    columns = ("--features", ",".join(FEATURES))
    folds = () if "folds" in how else ("--folds", 3)
    found = succeed("cross-validate", csv, *FITTED, *columns, *folds, *options, "--json")
    wanted = by_hand(**{"folds": 3, **how})
    assert found["pooled"]["rmse"] == pytest.approx(wanted.pooled["rmse"], rel=1e-6)


def test_a_store_and_several_targets_have_tables(csv, tmp_path):
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
        (("--groups", "staton"), "groups='staton' is no column"),
        (("--groups", "station", "--time", "day"), "each make folds of their own"),
        (("--folds", "many", "--groups", "station"), "give a number, or 'loo'"),
        (("--folds", "2.5", "--groups", "station"), "a whole number"),
        (("--metrics", "rmsee", "--model", "exact", "--groups", "station"), "choose one of"),
        (("--model", "auto", "--groups", "station"), "name the method"),
        (("--y-std", "day", "--groups", "station"), "--y-variance"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(csv, options, said):
    assert said in refused("cross-validate", csv, "--target", "temp", *options)


def test_rows_without_a_group_are_told(csv):
    table = stations()
    table["site"] = np.repeat(np.arange(12.0), 6)
    table.loc[5, "site"] = np.nan
    table.drop(columns="station").to_csv(csv, index=False)
    told = invoke("cross-validate", csv, *FITTED, "--groups", "site", "--json")
    assert "1 of 72 rows have no 'site' and are left out" in told.stderr
    assert sum(row["rows"] for row in json.loads(told.stdout)["folds"][:5]) == 71
