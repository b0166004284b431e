"""What grids declare missing, and what a conversion is told: read as NaN, and said in one line."""

import logging
import re

import numpy as np
import pytest
import xarray as xr
import zarr

import daskgp
from daskgp.errors import InputError, SettingError

RAW = [10, -99, 30, 25]
PACKED = {"scale_factor": 0.1, "add_offset": 2.0}
INT16 = np.int16
DECLARED = {
    "missing_value of packed values": ({"missing_value": INT16(-99), **PACKED}, [3, 5, 4.5]),
    "_FillValue of packed values": ({"_FillValue": INT16(-99), **PACKED}, [3, 5, 4.5]),
    "missing_value of unpacked values": ({"missing_value": -7.9, **PACKED}, [3, 5, 4.5]),
    "valid_min of packed values": ({"valid_min": INT16(0), **PACKED}, [3, 5, 4.5]),
    "valid_range of packed values": ({"valid_range": INT16([0, 25]), **PACKED}, [3, 4.5]),
    "valid_range of unpacked values": ({"valid_range": [0.0, 4.6], **PACKED}, [3, 4.5]),
    "valid_max": ({"valid_max": INT16(25)}, [10, -99, 25]),
    "a range of unsigned values": (
        {"_Unsigned": "true", "valid_range": INT16([0, -200])},
        [10, 30, 25],
    ),
    "a range that is text": ({"valid_range": "0 to 20"}, RAW),
    "a range the wrong way round": ({"valid_min": INT16(5), "valid_max": INT16(1)}, RAW),
}


def grid(attributes, raw=RAW):
    z = xr.Variable("x", np.array(raw, INT16), attributes)
    return xr.Dataset({"z": z}, {"x": np.arange(len(raw)) + 0.5})


def written(path, attributes, kind):
    if kind == "nc":
        own = {} if "_FillValue" in attributes else {"z": {"_FillValue": None}}
        grid(attributes).to_netcdf(f"{path}/g.nc", encoding=own)
    else:
        grid(attributes).to_zarr(f"{path}/g.zarr", consolidated=False)
    return f"{path}/g.{kind}"


def targets(source, path, **settings):
    daskgp.convert(source, f"{path}/rows.zarr", target="z", progress=False, **settings)
    return daskgp.open_dataset(f"{path}/rows.zarr")[1].compute()


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["nc", "zarr"])
@pytest.mark.parametrize("name", DECLARED)
def test_what_a_grid_declares_is_heeded(name, kind, tmp_path):
    attributes, wanted = DECLARED[name]
    found = targets(written(tmp_path, attributes, kind), tmp_path)
    np.testing.assert_allclose(found, wanted)


def test_it_is_said_and_can_be_kept(tmp_path, caplog):
    source = written(tmp_path, {"valid_range": INT16([0, 25])}, "nc")
    assert len(targets(source, tmp_path)) == 2
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert (
        "valid range: read as missing, 2 of 'z' (fill_values=None or --fill none keeps them)"
        in line
    )
    (tmp_path / "kept").mkdir()
    np.testing.assert_array_equal(targets(source, tmp_path / "kept", fill_values=None), RAW)
    none = written(tmp_path / "kept", {"valid_min": INT16(100)}, "nc")
    with pytest.raises(InputError, match="NaN by the valid range or the fill value"):
        daskgp.convert(none, f"{tmp_path}/none.zarr", target="z", progress=False)


@pytest.mark.parametrize("as_grid", [False, True])
def test_given_numbers_are_missing_in_every_column(as_grid, tmp_path):
    frame = {"a": [1.0, -9.0, 3.0, 4.0], "z": [5.0, 6.0, -9.0, 8.0]}
    if as_grid:
        source = xr.Dataset({name: ("x", values) for name, values in frame.items()})
        source = source.assign_coords(x=np.arange(4.0))
    else:
        source = f"{tmp_path}/t.npz"
        np.savez(source, **{name: np.array(values) for name, values in frame.items()})
    settings = {"features": ["a"], "fill_values": [-9]}
    daskgp.convert(source, f"{tmp_path}/t.zarr", target="z", progress=False, **settings)
    X, y = (part.compute() for part in daskgp.open_dataset(f"{tmp_path}/t.zarr"))
    np.testing.assert_array_equal(X[:, 0], [1, np.nan, 4] if as_grid else [1, np.nan, 3, 4])
    np.testing.assert_array_equal(y, [5, 6, 8] if as_grid else [5, 6, np.nan, 8])
    with pytest.raises(SettingError, match="fill_values"):
        daskgp.convert(source, f"{tmp_path}/u.zarr", target="z", fill_values="-9")


def test_grids_in_memory_and_to_predict_are_read_so(tmp_path):
    """A feature and a target whose attributes say a fill value that nobody has decoded."""
    x, y = np.meshgrid(np.linspace(0, 3, 12), np.linspace(0, 2, 10))
    depth, z = np.sin(x) + y, 20 + x * y
    missing = depth.copy()
    missing[3, 4], z[5, 6] = -9999.0, -9999.0
    said = {"missing_value": -9999.0}
    coords = {"y": y[:, 0], "x": x[0]}
    whole = xr.Dataset({"depth": (("y", "x"), missing, said)}, coords)
    target = xr.DataArray(z, coords, ("y", "x"), "z", said)
    settings = {"optimizer": None, "fill_values": None, "progress": False}
    model = daskgp.ExactGP(**settings).fit(whole, target)
    assert model.n_rows_ == 118
    assert np.isnan(model.predict(whole).values).sum() == 1
    whole.to_netcdf(f"{tmp_path}/g.nc")
    model.predict_store(f"{tmp_path}/g.nc", f"{tmp_path}/map.zarr")
    stored = xr.open_zarr(f"{tmp_path}/map.zarr")
    assert np.isnan(stored["mean"].values).sum() == 1


@pytest.mark.whole
@pytest.mark.parametrize("what", ["target by name", "target", "feature", "places", "Zarr"])
def test_packed_numbers_that_nothing_unpacked_are_told(what, caplog):
    packed = grid({"scale_factor": 0.1})
    plain = xr.Dataset({"y": ("x", np.arange(4.0))}, packed.coords)
    model = daskgp.ExactGP(optimizer=None, progress=False)
    if what == "target by name":
        model.fit(packed, "z")
    elif what == "target":
        model.fit(packed.z, packed.z)
    elif what == "feature":
        model.fit(packed.merge(plain), "y", features=["z"])
    elif what == "places":
        model.fit(packed.astype(float), plain.y)
        assert "packed" not in caplog.text  # nor floats, which somebody has unpacked
        model.predict(packed)
    else:
        group = zarr.create_group(zarr.storage.MemoryStore())
        X, y = (group.create_array(name, data=np.array(RAW)[:, None]) for name in "Xy")
        y.attrs["scale_factor"] = 0.1
        model.fit(X, y)
    (line,) = [text for text in caplog.messages if "packed" in text]
    assert re.match("[zy] holds packed whole numbers .scale_factor=0.1 in its attributes", line)


def test_attributes_that_unpack_nothing_are_not_told(caplog):
    packed = grid({"scale_factor": 1.0, "add_offset": 0.0})
    daskgp.ExactGP(optimizer=None, progress=False).fit(packed, "z")
    assert "packed" not in caplog.text
