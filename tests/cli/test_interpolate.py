"""Maps in one line on the command line, against those of Python."""

import json
import os
import signal

import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import daskgp
from tests.commands import files, refused, succeed

GRID = ("--resolution", "lon=0.5,lat=0.5", "--extent", "lon=5:9,lat=45:48")
THERE = {"lat": np.arange(45, 48.1, 0.5), "lon": np.arange(5, 9.1, 0.5)}


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"lon": rng.uniform(5, 9, 60), "lat": rng.uniform(45, 48, 60)})
    rows["temp"] = np.sin(rows.lon) + np.cos(rows.lat) + 0.1 * rng.standard_normal(60)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    return rows


@pytest.mark.parametrize("ending", ["nc", "zarr"])
def test_a_csv_becomes_a_map(table, tmp_path, ending):
    found = succeed("interpolate", tmp_path / "rows.csv", tmp_path / f"map.{ending}", *GRID)
    wanted = daskgp.interpolate(table, THERE)
    with xr.open_dataset(tmp_path / f"map.{ending}") as maps:
        assert maps.temp.dims == ("lat", "lon")
        np.testing.assert_allclose(maps.temp, wanted.temp, atol=1e-6)
        np.testing.assert_allclose(maps.temp_std, wanted.temp_std, atol=1e-6)
    assert (found["target"], found["method"], found["rows"]) == ("temp", "ExactGP", 60)
    assert (found["cells"], found["known"]) == (63, 63)
    assert {one.name for one in tmp_path.iterdir()} == {"rows.csv", f"map.{ending}"}


def test_options_are_those_of_python(table, tmp_path):
    ring = [[4, 44], [7.25, 44], [7.25, 49], [4, 49], [4, 44]]
    (tmp_path / "half.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    lon, lat = np.linspace(4, 10, 4), np.linspace(44, 49, 6)
    guess = xr.DataArray(2 * lon[:, None] - lat, {"lon": lon, "lat": lat}, ("lon", "lat"))
    guess.to_dataset(name="guess").to_netcdf(tmp_path / "guess.nc")
    given = ("--background", tmp_path / "guess.nc", "--mask", tmp_path / "half.geojson")
    given += ("--max-std", 0.5, "--min-neighbours", 2, "--include-noise")
    given += ("--model", "sgpr", "--set", "n_inducing=20", "--kernel", "matern32")
    found = succeed("interpolate", tmp_path / "rows.csv", tmp_path / "map.nc", *GRID, *given)
    how = {"max_std": 0.5, "min_neighbours": 2, "include_noise": True, "method": "sgpr"}
    how |= {"n_inducing": 20, "kernel": "matern32", "mask": str(tmp_path / "half.geojson")}
    wanted = daskgp.interpolate(table, THERE, background=guess, **how)
    with xr.open_dataset(tmp_path / "map.nc") as maps:
        np.testing.assert_allclose(maps.temp, wanted.temp, atol=1e-6)
    assert found["known"] == int(wanted.temp.notnull().sum()) < 63


def test_gaps_of_a_file_are_filled(table, tmp_path):
    maps = daskgp.interpolate(table, THERE)
    gappy = maps[["temp"]].where(maps.temp_std < maps.temp_std.median())
    gappy.to_netcdf(tmp_path / "gappy.nc")
    found = succeed("interpolate", tmp_path / "gappy.nc", tmp_path / "whole.nc")
    assert found["rows"] < found["known"] == found["cells"] == 63
    again = succeed(
        "interpolate", tmp_path / "rows.csv", tmp_path / "like.nc", "--like", tmp_path / "gappy.nc",
        "--target", "temp", "--features", "lon,lat",
    )  # fmt: skip
    assert again["cells"] == 63


def test_what_does_not_fit_is_refused_in_one_line(table, tmp_path):
    source, output = tmp_path / "rows.csv", tmp_path / "map.nc"
    for words, said in (
        (("map.png", *GRID), "end its name in .nc, .zarr or .tif"),
        (("http://localhost/map.nc", *GRID), "a web server does not list its files"),
        (("ftp://localhost:9/map.nc", *GRID), "cannot use the address ftp://localhost:9/map.nc"),
        ((output, *GRID, "--destination-options", "anon=true"), "has no effect"),
        ((tmp_path / "no" / "map.nc", *GRID), "no folder"),
        ((source.with_name("rows.csv.nc"), "--like", tmp_path / "no.nc"), "does not exist"),
        ((output, *GRID, "--background", tmp_path / "no.nc"), "does not exist"),
        ((output,), "give one as like= (--like or --resolution)"),
        ((output, *GRID, "--set", "n_inducing=3"), "name it with --model"),
        ((output, "--resolution", "lon=0.5,lta=0.5"), "did you mean 'lat'?"),
        ((output, *GRID, "--target", "tmep"), "tmep"),
    ):
        assert said in refused("interpolate", source, *words)
    before = files(tmp_path)
    output.write_bytes(b"mine")
    assert "exists already" in refused("interpolate", source, output, *GRID)
    assert files(tmp_path) == before | {"map.nc": b"mine"}


def test_a_geotiff_has_a_band_of_each(table, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    given = ("interpolate", tmp_path / "rows.csv", tmp_path / "map.tif")
    found = succeed(*given, *GRID)
    wanted = daskgp.interpolate(table, THERE)
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.descriptions == ("temp", "temp_std")
        assert tuple(file.bounds) == (4.75, 44.75, 9.25, 48.25)
        for own, one in zip(file.read(), (wanted.temp, wanted.temp_std), strict=True):
            np.testing.assert_allclose(own[::-1], one, atol=1e-6)
    assert found["cells"] == 63
    uneven = xr.Dataset(coords={"lon": [5.0, 6, 9], "lat": [45.0, 46]})
    uneven.to_netcdf(tmp_path / "uneven.nc")
    assert "exists already" in refused(*given, *GRID)
    (tmp_path / "map.tif").unlink()
    line = refused(*given, "--like", tmp_path / "uneven.nc")
    assert "'lon' of the grid is not evenly spaced" in line
    assert {one.name for one in tmp_path.iterdir()} == {"rows.csv", "uneven.nc"}


def test_a_full_disk_leaves_nothing(table, tmp_path, monkeypatch):
    def full(maps, path, **how):
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", full)
    line = refused("interpolate", tmp_path / "rows.csv", tmp_path / "map.nc", *GRID)
    assert "the disk is full: free some space" in line
    assert {one.name for one in tmp_path.iterdir()} == {"rows.csv"}


@pytest.mark.parametrize("ending", ["nc", "zarr"])
def test_a_map_may_go_to_an_object_store(table, tmp_path, ending):
    url = f"memory://maps-{ending}/map.{ending}"
    found = succeed("interpolate", tmp_path / "rows.csv", url, *GRID)
    assert (found["map"], found["known"]) == (url, 63)
    fs, place = fsspec.core.url_to_fs(url)
    copy = tmp_path / f"copy.{ending}"
    fs.get(place, str(copy), recursive=ending == "zarr")
    wanted = daskgp.interpolate(table, THERE)
    with xr.open_dataset(copy) as maps:
        np.testing.assert_allclose(maps.temp, wanted.temp, atol=1e-6)
    assert "exists already" in refused("interpolate", tmp_path / "rows.csv", url, *GRID)


def test_an_object_store_that_refuses_is_left_without_the_map(table, tmp_path, monkeypatch):
    url = "memory://maps-refused/map.zarr"
    fs, place = fsspec.core.url_to_fs(url)

    def refuse(*given, **how):
        raise PermissionError("AccessDenied")

    monkeypatch.setattr(type(fs), "put_file", refuse)
    assert "permission denied" in refused("interpolate", tmp_path / "rows.csv", url, *GRID)
    assert not fs.exists(place)


def test_a_table_without_rows_is_told(tmp_path):
    (tmp_path / "empty.csv").write_text("lon,lat,temp\n")
    given = ("interpolate", tmp_path / "empty.csv", tmp_path / "map.nc", "--target", "temp")
    said = refused(*given, "--resolution", "lon=0.5,lat=0.5")
    assert "has no value of 'lon', so nothing says where the grid lies" in said
    assert "there is nothing to interpolate" in refused(*given, *GRID)
    assert not (tmp_path / "map.nc").exists()


def test_rows_have_errors_as_in_every_command(table, tmp_path):
    rows = table.assign(error=np.linspace(0.02, 0.6, 60))
    rows.assign(variance=rows.error**2).to_csv(tmp_path / "rows.csv", index=False)
    told = ("--target", "temp", *GRID)
    by_std = ("interpolate", tmp_path / "rows.csv", tmp_path / "std.nc", "--y-std", "error", *told)
    assert succeed(*by_std, "--features", "lon,lat")["rows"] == 60
    by_variance = ("--y-variance", "variance", "--features", "lon,lat")
    succeed("interpolate", tmp_path / "rows.csv", tmp_path / "var.nc", *told, *by_variance)
    rows = rows.assign(variance=rows.error**2)
    how = {"target": "temp", "features": ["lon", "lat"]}
    wanted = daskgp.interpolate(rows, THERE, y_variance="variance", **how)
    plain = daskgp.interpolate(rows, THERE, **how)
    assert float(abs(wanted.temp - plain.temp).max()) > 0.01
    model = daskgp.ExactGP(progress=False)
    model.fit(rows[["lon", "lat"]], rows.temp, y_variance=rows.variance)
    places = np.stack(np.meshgrid(THERE["lon"], THERE["lat"]), axis=-1).reshape(-1, 2)
    by_hand = model.predict(places).reshape(wanted.temp.shape)
    for name in ("std.nc", "var.nc"):
        with xr.open_dataset(tmp_path / name) as maps:
            np.testing.assert_allclose(maps.temp, wanted.temp, atol=1e-6)
            np.testing.assert_allclose(maps.temp, by_hand, atol=1e-5)


def test_counts_have_their_exposure_and_dates_are_dates(tmp_path):
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"lon": rng.uniform(5, 9, 80), "lat": rng.uniform(45, 48, 80)})
    rows["people"] = rng.integers(20, 900, 80)
    rows["cases"] = rng.poisson(0.05 * rows.people * np.exp(np.sin(rows.lon)))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    how = ("--target", "cases", "--exposure", "people", *GRID)
    model = ("--model", "exact", "--set", "likelihood=poisson")
    found = succeed("interpolate", tmp_path / "rows.csv", tmp_path / "m.nc", *how, *model)
    assert found["features"] == ["lat", "lon"]
    with xr.open_dataset(tmp_path / "m.nc") as maps:
        rate = 0.05 * np.exp(np.sin(maps.lon))
        assert float(abs(maps.cases / rate - 1).median()) < 0.2
    later = np.arange(80) % 5
    day = np.array([20260227, 20260228, 20260301, 20260302, 20260303])[later]
    days = rows[["lon", "lat"]].assign(day=day, y=rows.lon + later)
    days.to_csv(tmp_path / "days.csv", index=False)
    grid = ("--resolution", "lon=1,lat=1", "--extent", "lon=5:9,lat=45:48,day=20260301")
    told = ("--target", "y", "--features", "lon,lat,day", "--dates", "day")
    said = succeed("interpolate", tmp_path / "days.csv", tmp_path / "d.nc", *grid, *told)
    assert said["known"] == 20
    with xr.open_dataset(tmp_path / "d.nc") as maps:
        assert float(abs(maps.y - maps.lon - 2).max()) < 0.2


def test_columns_that_do_not_go_with_a_map_are_told(table, tmp_path):
    rows = table.assign(low=table.temp - 1)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    guess = tmp_path / "guess.nc"
    daskgp.interpolate(table, THERE)[["temp"]].to_netcdf(guess)
    given = ("interpolate", tmp_path / "rows.csv", tmp_path / "map.nc", *GRID, "--target")
    censored = ("--model", "exact", "--set", "likelihood=censored")
    for words, said in (
        (("temp,low",), "--target is temp,low: a map has one target"),
        (("temp", "--y-std", "low,lat"), "--y-std is low,lat: a map has one target"),
        (("temp", "--y-variance", "lwo"), "lwo"),
        (("temp", "--exposure", "low"), "exposure"),
        (
            ("temp", "--lower", "low", "--background", guess, *censored),
            "which does not go with lower",
        ),
        (("temp", "--y-std", "low"), "low"),
    ):
        assert said in refused(*given, *words)
    with pytest.raises(daskgp.errors.SettingError, match="give the name of a column"):
        daskgp.interpolate(rows, THERE, target="temp", y_variance=rows.low)


@pytest.mark.parametrize("model", [(), ("--model", "exact")])
def test_a_mean_is_that_of_fit(table, tmp_path, model):
    given = ("interpolate", tmp_path / "rows.csv", tmp_path / "map.nc", *GRID, *model)
    succeed(*given, "--mean", "ols")
    wanted = daskgp.interpolate(table, THERE, mean="ols")
    with xr.open_dataset(tmp_path / "map.nc") as maps:
        np.testing.assert_allclose(maps.temp, wanted.temp, atol=1e-6)


def test_grids_made_twice_have_the_same_axes(table, tmp_path):
    given = ("interpolate", tmp_path / "rows.csv")
    succeed(*given, tmp_path / "a.nc", "--resolution", "lon=0.1,lat=0.1")
    ends = ("--extent", "lon=5.3:8.7,lat=45.3:47.7")
    succeed(*given, tmp_path / "b.nc", "--resolution", "lon=0.1,lat=0.1", *ends)
    with xr.open_dataset(tmp_path / "a.nc") as a, xr.open_dataset(tmp_path / "b.nc") as b:
        assert {*b.lon.values} <= {*a.lon.values}
        assert [repr(float(one)) for one in b.lon[:3]] == ["5.3", "5.4", "5.5"]


def test_a_map_beyond_the_memory_is_refused_before_the_work(table, tmp_path):
    steps = ("--resolution", "lon=0.0001,lat=0.0001", "--extent", "lon=0:300,lat=-80:80")
    line = refused("interpolate", tmp_path / "rows.csv", tmp_path / "map.nc", *steps)
    assert "the map has 4,800,004,600,001 cells" in line
    assert "larger steps or a smaller extent" in line


def test_a_second_signal_does_not_end_the_cleaning_up(table, tmp_path, monkeypatch):
    def twice(*given, **how):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(xr.Dataset, "to_netcdf", twice)
    line = refused("interpolate", tmp_path / "rows.csv", tmp_path / "map.nc", *GRID, code=143)
    assert line == "Error: terminated"
    assert signal.getsignal(signal.SIGTERM) is before
