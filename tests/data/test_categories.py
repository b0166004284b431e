"""Text and categories in frames, grids and files become numbers of levels, whose names stay."""

import numpy as np
import pandas as pd
import pytest
import zarr

from daskgp.data import categories, rows_of
from daskgp.data.convert.convert import convert
from daskgp.errors import InputError
from daskgp.models.columns import Columns

SITES = ["b", "a", None, "c", "a", "b", "", "a"]
CODES = [1, 0, np.nan, 2, 0, 1, np.nan, 0]
FRAME = pd.DataFrame({"x": np.arange(8.0), "site": SITES, "y": np.arange(8.0) ** 2})


def frames():
    dask_frame, arrow = pytest.importorskip("dask.dataframe"), pytest.importorskip("pyarrow")
    yield "pandas", FRAME, ("a", "b", "c")
    ordered = pd.Categorical([site or None for site in SITES], ["c", "b", "unused", "a"])
    yield "categories", FRAME.assign(site=ordered), ("c", "b", "a")
    yield "dask", dask_frame.from_pandas(FRAME, npartitions=2), ("a", "b", "c")
    yield "arrow", arrow.Table.from_pandas(FRAME), ("a", "b", "c")


def test_text_of_any_frame_has_the_places_of_its_sorted_names_or_of_categories():
    for form, frame, levels in frames():
        coded, found = categories.coded(frame)
        assert found == {"site": levels}, form
        column = np.asarray(coded["site"], np.float64)
        names = [levels[int(code)] if code == code else None for code in column]
        assert names == [site or None for site in SITES], form
    rows = rows_of(FRAME[["x", "site"]], FRAME["y"], None, True)
    assert rows.categories == {"site": ("a", "b", "c")}
    np.testing.assert_array_equal(rows.read(0, 8)[0][:, 1], CODES)


def test_numbers_of_categories_stay_numbers_and_their_places_are_inputs():
    frame = pd.DataFrame({"land": pd.Categorical([30, 10, 20, 10])})
    coded, found = categories.coded(frame)
    assert found == {"land": ("10", "20", "30")}
    np.testing.assert_array_equal(coded["land"], [30.0, 10.0, 20.0, 10.0])
    columns = Columns(("land",), levels=(found["land"],))
    X = np.array([[30.0], [10.0], [np.nan]])
    np.testing.assert_array_equal(columns.inputs(X), [[2.0], [0.0], [np.nan]])
    np.testing.assert_array_equal(columns.places(np.array([[1.9], [0.2]])), [[30.0], [10.0]])


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_files_with_text_make_stores_that_name_its_levels(tmp_path, end):
    source, store, more = tmp_path / f"t.{end}", tmp_path / "t.zarr", tmp_path / f"u.{end}"
    late = FRAME.assign(site=["d", *SITES[1:]])
    for path, frame in ((source, FRAME), (more, late)):
        getattr(frame, f"to_{end}")(path, index=False)
    convert(source, store, "y", ["x", "site"])
    group = zarr.open_group(str(store), mode="r")
    assert group.attrs["categories"] == {"site": ["a", "b", "c"]}
    np.testing.assert_array_equal(group["X"][:, 1], CODES)
    convert(more, store, append=True)  # whose levels come after those that there are
    group = zarr.open_group(str(store), mode="r")
    assert group.attrs["categories"] == {"site": ["a", "b", "c", "d"]}
    np.testing.assert_array_equal(group["X"][8:, 1], [3, *CODES[1:]])
    with pytest.raises(InputError, match=r"'site' of .* holds numbers, but it is a category with"):
        convert(FRAME.assign(site=1.0), store, append=True)


def test_text_among_numbers_is_no_category(tmp_path):
    for values in (["1.5", "n/a", 2.0], ["7", "12A", "8"], ["2001-02-03", "a", "b"], ["1,5"] * 3):
        frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "y": 0.0})
        assert categories.coded(frame)[1] == {}
        with pytest.raises(InputError, match=r"^column 'x' of the DataFrame"):
            convert(frame, tmp_path / "o.zarr", "y", ["x"])
    with pytest.raises(InputError, match=r"1,001 different values .*leave the column out"):
        categories.coded(pd.DataFrame({"id": [f"r{i}" for i in range(1001)]}))


def test_names_of_rows_are_told(caplog):
    categories.coded(pd.DataFrame({"id": [*"abcdefghijklmnopqrstuv"]}))
    assert "22 different values in 22 rows, as if each named a row" in caplog.text
