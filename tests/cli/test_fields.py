"""Fields of hyper-parameters on the command line."""

import pytest
import xarray as xr

from daskgp.cli.settings import build_estimator
from daskgp.errors import SettingError


def test_fields_come_from_a_file_or_a_store(tmp_path):
    fields = xr.Dataset({"variance": ("x0", [1.0, 2.0])}, {"x0": [0.0, 1.0]})
    fields.to_netcdf(tmp_path / "map.nc")
    fields.to_zarr(tmp_path / "map.zarr", zarr_format=2)
    for name in ("map.nc", "map.zarr"):
        model = build_estimator("vecchia", [f"varying={tmp_path / name}"])
        xr.testing.assert_equal(model.varying, fields)
    assert build_estimator("vecchia", ["varying=auto"]).varying == "auto"
    assert build_estimator("vecchia", ["varying=4"]).varying == 4
    with pytest.raises(SettingError, match=r"none\.nc: there is no such file or store"):
        build_estimator("vecchia", [f"varying={tmp_path / 'none.nc'}"])
    fields.assign_attrs(format="daskgp-model").to_netcdf(tmp_path / "model.nc")
    with pytest.raises(SettingError, match=r"is a store of daskgp: give fields"):
        build_estimator("vecchia", [f"varying={tmp_path / 'model.nc'}"])
