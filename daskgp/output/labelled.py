"""Labelled maps in netCDF files and Zarr groups, which appear once they are whole."""

from __future__ import annotations

import os
import shutil
import uuid
import warnings
from typing import Any

from daskgp.data.stores import groups
from daskgp.errors import SettingError, StoreError

ENDINGS = (".nc", ".zarr")


def refuse_taken(path: str) -> None:
    """Raise an error unless maps can be written to a new file or group of this name."""
    if not path.lower().endswith(ENDINGS):
        raise SettingError(f"cannot tell the format of {path}: end its name in .nc or .zarr")
    if "://" in path:
        raise SettingError(
            f"{path} is not on this machine: write the map here and copy it, or fit a model and "
            "predict into a store there (daskgp predict MODEL GRID URL)"
        )
    if os.path.lexists(path):
        raise StoreError(f"{path} exists already: remove it or choose another name")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(folder, os.W_OK):
        raise StoreError(f"{path} cannot be written: there is no folder {folder} to write to")


def write(maps: Any, path: str) -> None:
    """Write a Dataset to a new netCDF file or Zarr group, by the ending of its name.

    Raises
    ------
    SettingError, StoreError
        If the name has another ending or is taken, or the disk is full.
    """
    refuse_taken(path)
    ending = path[path.rindex(".") :]
    part = f"{path[: -len(ending)]}.{uuid.uuid4().hex[:8]}{ending}"
    try:
        with groups.writing(path, "the map"):
            if ending.lower() == ".nc":
                maps.to_netcdf(part)
            else:
                with warnings.catch_warnings():
                    # zarr warns that others may not read it: readers without it read the rest
                    warnings.filterwarnings("ignore", "Consolidated metadata")
                    maps.to_zarr(part, mode="w-", consolidated=True)
            refuse_taken(path)
            os.rename(part, path)
    finally:
        if os.path.isdir(part):
            shutil.rmtree(part)
        elif os.path.exists(part):
            os.remove(part)
