"""Columns in the names of folders; rows that are added without naming what the store remembers."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import refused, succeed

import daskgp
from daskgp.errors import InputError


def table(n=24):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=n), "y": rng.normal(size=n)})
    return frame.assign(year=2020 + np.arange(n) // 12, month=1 + np.arange(n) // 2 % 6)


def parts(folder, form="parquet", frame=None):
    """A file for each year and month."""
    frame = table() if frame is None else frame
    if form == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(folder, partition_cols=["year", "month"])
        return folder
    for (year, month), part in frame.groupby(["year", "month"]):
        (folder / f"year={year}" / f"month={month}").mkdir(parents=True)
        part[["a", "y"]].to_csv(folder / f"year={year}" / f"month={month}" / "p.csv", index=False)
    return folder


def rows(url):
    group = zarr.open_group(str(url), mode="r")
    return pd.DataFrame(group["X"][...], columns=group.attrs["feature_names"]).assign(
        y=group["y"][...]
    )


def same(found, frame):
    order = [*found.columns]
    pd.testing.assert_frame_equal(
        found.sort_values("a", ignore_index=True),
        frame[order].sort_values("a", ignore_index=True).astype(float),
    )


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("address", ["d", "d/*/*/*.{}", "d.parquet"])
def test_names_of_folders_are_columns(form, address, tmp_path):
    folder = parts(tmp_path / (address if "*" not in address else "d"), form)
    if form == "csv" and address == "d.parquet":
        return
    source = str(tmp_path / address.format(form)) if "*" in address else folder
    found = daskgp.convert(source, tmp_path / "o.zarr", "y")
    assert found.features == ("a", "year", "month")
    same(rows(tmp_path / "o.zarr"), table())
    chosen = {"target": "y", "features": ["month", "a"]}
    daskgp.convert(source, tmp_path / "m.zarr", **chosen)
    same(rows(tmp_path / "m.zarr"), table())


def test_only_folders_below_the_given_place_are_columns(tmp_path):
    parts(tmp_path / "d")
    found = daskgp.convert(tmp_path / "d" / "year=2020", tmp_path / "o.zarr", "y")
    assert found.features == ("a", "month")
    same(rows(tmp_path / "o.zarr"), table()[:12])
    file = next((tmp_path / "d" / "year=2021" / "month=3").glob("*.parquet"))
    assert daskgp.convert(file, tmp_path / "f.zarr", "y").features == ("a",)


def test_folders_above_the_given_place_are_columns_where_they_are_named(tmp_path):
    parts(tmp_path / "d")
    daskgp.convert(tmp_path / "d", tmp_path / "o.zarr", "y")
    found = daskgp.convert(
        tmp_path / "d" / "year=2021" / "month=3", tmp_path / "o.zarr", append=True
    )
    assert found.features == ("a", "year", "month")
    march = table().query("year == 2021 and month == 3")
    same(rows(tmp_path / "o.zarr"), pd.concat([table(), march]))
    file = next((tmp_path / "d" / "year=2021" / "month=3").glob("*.parquet"))
    daskgp.convert(file, tmp_path / "f.zarr", "y", ["a", "month"])
    same(rows(tmp_path / "f.zarr"), march.drop(columns="year"))


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("kind", ["files", "folders", "patterns", "pattern of folders", "**"])
def test_names_of_folders_are_columns_of_lists_and_patterns_of_folders(kind, form, tmp_path):
    folder = parts(tmp_path / "d", form)
    years = sorted(folder.glob("year=*"))
    sources = {
        "files": sorted(folder.glob(f"*/*/*.{form}")),
        "folders": years,
        "patterns": [f"{year}/*/*.{form}" for year in years],
        "pattern of folders": f"{folder}/year=*",
        "**": f"{folder}/**",
    }
    found = daskgp.convert(sources[kind], tmp_path / "o.zarr", "y")
    assert found.features == ("a", "year", "month")
    same(rows(tmp_path / "o.zarr"), table())


def test_days_missing_values_and_text_in_names(tmp_path):
    pytest.importorskip("pyarrow")
    frame = table().drop(columns=["year", "month"])
    frame["day"] = np.repeat(["2020-01-05", "2020-02-01", None], 8)
    frame.to_parquet(tmp_path / "d", partition_cols=["day"])
    daskgp.convert(tmp_path / "d", tmp_path / "o.zarr", "y")
    group = zarr.open_group(str(tmp_path / "o.zarr"), mode="r")
    assert group.attrs["feature_units"] == ["", "days since 1970-01-01"]
    days = {18266.0: 8, 18293.0: 8}
    found = pd.Series(group["X"][:, 1])
    assert found.value_counts().to_dict() == days
    assert found.isna().sum() == 8
    frame["day"] = "Oslo"
    frame.to_parquet(tmp_path / "t", partition_cols=["day"])
    with pytest.raises(InputError, match=r"'day' .* holds text such as 'Oslo' in the names of"):
        daskgp.convert(tmp_path / "t", tmp_path / "t.zarr", "y")
    assert not (tmp_path / "t.zarr").exists()
    daskgp.convert(tmp_path / "t", tmp_path / "t.zarr", "y", ["a"])


def test_a_column_of_the_file_itself_comes_first(tmp_path):
    (tmp_path / "d" / "a=7").mkdir(parents=True)
    table().to_csv(tmp_path / "d" / "a=7" / "t.csv", index=False)
    daskgp.convert(tmp_path / "d", tmp_path / "o.zarr", "y")
    same(rows(tmp_path / "o.zarr"), table())


def test_columns_of_folders_alone_have_no_rows_to_count(tmp_path):
    parts(tmp_path / "d", "csv")
    told = refused("convert", tmp_path / "d", tmp_path / "o.zarr", "--features", "year")
    assert "the columns year come only from names of folders: name a column that is in" in told
    assert not (tmp_path / "o.zarr").exists()


# -- rows that are added ---------------------------------------------------------------------


def test_errors_and_weights_are_taken_from_the_columns_they_came_from(tmp_path):
    frame = table().assign(e=0.5, v=0.3, w=2.0)
    url = tmp_path / "d.zarr"
    names = {"features": ["a", "month"], "y_std": "e", "weight": "w"}
    daskgp.convert(frame, url, "y", **names)
    said = {"y_std": "e", "weight": "w"}
    assert zarr.open_group(str(url)).attrs["converted_from"] == said
    frame.to_csv(tmp_path / "t.csv", index=False)
    succeed("convert", tmp_path / "t.csv", url, "--append")
    daskgp.convert(frame, url, append=True, y_variance="v")  # another name this time
    daskgp.convert(frame, url, append=True, y_std="v")
    group = zarr.open_group(str(url), mode="r")
    np.testing.assert_allclose(
        group["y_variance"][...], np.repeat([0.25, 0.25, 0.3, 0.09], len(frame))
    )
    np.testing.assert_array_equal(group["weight"][...], 2.0)
    assert group.attrs["converted_from"] == said


def test_a_mask_is_taken_again_for_grids_alone(tmp_path):
    def grid(first):
        coords = {"t": first + np.arange(3.0), "x": np.arange(4.0)}
        data = {"y": (("t", "x"), np.ones((3, 4))), "sea": ("x", [True, False, True, True])}
        return xr.Dataset(data, coords)

    daskgp.convert(grid(0), tmp_path / "d.zarr", "y", mask="sea")
    assert daskgp.convert(grid(3), tmp_path / "d.zarr", append=True)[:2] == (9, 3)
    frame = pd.DataFrame({"t": [9.0], "x": [1.0], "y": [2.0]})
    assert daskgp.convert(frame, tmp_path / "d.zarr", append=True).rows == 1
    with pytest.raises(InputError, match="mask='t' is for grids"):
        daskgp.convert(frame, tmp_path / "d.zarr", append=True, mask="t")
