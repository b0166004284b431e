"""Labelled maps in netCDF files, Zarr groups and GeoTIFFs, which appear once they are whole."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from daskgp import data
from daskgp.checks import shown
from daskgp.data import encoding as encodings
from daskgp.data import geotiffs, gridded, grids, prediction_store, rasters
from daskgp.data.encoding import AS_GIVEN, Encoding
from daskgp.data.stores import groups, remote
from daskgp.errors import InputError, SettingError, StoreError

is_geotiff = rasters.is_geotiff
ENDINGS = (".nc", ".zarr", *rasters.ENDINGS)


def to_geotiff(
    maps: Any, path: str | os.PathLike[str], *, bands: str | Sequence[str] = (), crs: Any = None
) -> None:
    """Write maps to a new cloud-optimised GeoTIFF, of which each variable is a band.

    Bands have the names of the variables and their units, NaN where nothing is known, and the type
    of the maps.  North is up and west on the left, whatever the order of the coordinates;
    longitudes from 0 to 360 degrees become those from -180 to 180 where they then are in a row.
    Maps are read along their chunks, so that those of a store may be larger than memory, and the
    file appears once it is whole.

    Parameters
    ----------
    maps : Dataset, DataArray, str or path
        Maps over two dimensions, evenly spaced longitude and latitude, or x and y, such as those of
        `interpolate`; or the path of a prediction store, a Zarr group or a netCDF file with such.
    path : str or path
        New file, which ends in .tif or .tiff.
    bands : str or sequence of str
        Further dimensions, such as "time", of whose values each is a band; those of targets,
        quantiles, samples and classes are so in any case.
    crs : str or int, optional
        Coordinate reference system, such as "EPSG:32632"; default that which the ``spatial_ref`` of
        the maps says, or EPSG:4326 of longitudes and latitudes.

    Raises
    ------
    InputError
        If maps are not evenly spaced, have more dimensions or another system than ``crs``, or
        rioxarray and rasterio, of the extra ``geo``, are missing.
    SettingError, StoreError
        If the name has another ending or is taken, or the disk is full.

    Examples
    --------
    >>> import tempfile, numpy as np, rasterio, xarray as xr, daskgp
    >>> axes = {"lat": np.arange(45, 48, 0.5), "lon": np.arange(5, 9, 0.5)}
    >>> maps = xr.Dataset({"temp": (("lat", "lon"), np.ones((6, 8)), {"units": "K"})}, axes)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     daskgp.to_geotiff(maps, f"{folder}/map.tif")
    ...     with rasterio.open(f"{folder}/map.tif") as file:
    ...         file.descriptions, file.units, file.bounds.top, file.crs.to_string()
    (('temp',), ('K',), 47.75, 'EPSG:4326')
    """
    path = os.fspath(path)
    if not rasters.is_geotiff(path):
        raise SettingError(f"{path} is not the name of a GeoTIFF: end it in .tif or .tiff")
    refuse_taken(path)
    along = (bands,) if isinstance(bands, str) else tuple(bands)
    with opened(maps) as (fields, what):
        geotiffs.write(fields, geotiffs.layout_of(fields, what, along, crs), path, what)


@contextmanager
def opened(maps: Any) -> Iterator[tuple[Any, str]]:
    """Yield maps as a Dataset, lazy where they are stored, and what an error calls them.

    Raise an error for what holds no whole map.
    """
    with ExitStack() as stack:
        if grids.is_xarray(maps):
            fields, what = grids.as_dataset(maps, "values"), "the map"
        elif isinstance(maps, str | os.PathLike):
            what = os.fspath(maps)
            if not data.exists(what):
                raise InputError(f"{what} does not exist: check the path")
            if not gridded.is_grid(what):
                raise InputError(
                    f"{what} is a table or another source, and no map: interpolate or predict it "
                    "on a grid first"
                )
            with gridded.readable(what):
                fields = stack.enter_context(gridded.open_grid(what))
        else:
            raise InputError(
                f"maps is {shown(maps)}: give a Dataset or a DataArray, or the path of a store or "
                "a file of maps"
            )
        if fields.attrs.get("complete") is False:
            raise StoreError(f"{what} is not complete: predict it to its end, with --resume")
        if "row" in fields.dims and not fields.coords:
            raise InputError(
                f"{what} holds predictions of rows, which are not a map: predict a grid"
            )
        yield fields, what


def check_geotiff(coords: Mapping[Any, Any], what: str, path: str, bands: int) -> None:
    """Raise an error unless a map with some bands, on a grid with these coordinates, can be one."""
    grid = grids.labelled({}, coords, ())
    layout = geotiffs.layout_of(grid, what)
    here = os.path.join(tempfile.gettempdir(), "map.tif") if remote.is_remote(path) else path
    geotiffs.check_room(here, geotiffs.bytes_of(layout, bands))


def check_encoding(path: str, encoding: Encoding) -> None:
    """Raise an error unless a file of this name can have an encoding."""
    others = encoding._replace(dtype=None)
    if rasters.is_geotiff(path) and (others != AS_GIVEN or encoding.dtype == encodings.PACKED):
        raise SettingError(
            f"{path} is written in tiles of its own: give only dtype 'float32' or 'float64' "
            "of the encoding"
        )
    if not rasters.is_geotiff(path):
        encodings.check_kind(encoding, path.lower().endswith(".nc"))


def refuse_taken(path: str, elsewhere: bool = False) -> None:
    """Raise an error unless maps can be written to a new file or group of this name.

    ``elsewhere`` may be in an object store.
    """
    if remote.in_repository(path) is not None:
        raise SettingError(
            f"{path} lies in an Icechunk repository, which takes predictions of a model: fit one, "
            f"and then daskgp predict MODEL GRID {path}"
        )
    if not path.lower().endswith(ENDINGS):
        raise SettingError(f"cannot tell the format of {path}: end its name in .nc, .zarr or .tif")
    if rasters.is_geotiff(path):
        rasters.packages()
    if remote.is_remote(path) and not elsewhere:
        raise SettingError(f"{path} is not on this machine: write the map here and copy it")
    groups.refuse_file(path, "the map")


def write(maps: Any, path: str, encoding: Encoding = AS_GIVEN) -> None:
    """Write a Dataset to a new netCDF file, Zarr group or GeoTIFF, by the ending of its name.

    It appears once it is whole.  In an object store it is so once the metadata of a group, which
    come last, are there.

    Raises
    ------
    InputError, SettingError, StoreError
        If the name has another ending or is taken, the encoding does not fit, the disk is full, or
        an object store refuses.
    """
    check_encoding(path, encoding)
    refuse_taken(path, elsewhere=True)
    if not remote.is_remote(path):
        _write_here(maps, remote.location(path), encoding)
        return
    with tempfile.TemporaryDirectory(prefix="daskgp-") as folder:
        part = os.path.join(folder, path.rstrip("/").rpartition("/")[2])
        _write_here(maps, part, encoding)
        refuse_taken(path, elsewhere=True)
        _bring(part, path)


def _bring(part: str, url: str) -> None:
    """Copy a file or a group to an object store, of a group what makes it one last."""
    fs, place = remote.filesystem(url)
    files = sorted(file for file in Path(part).rglob("*") if file.is_file())
    top = Path(part, "zarr.json")
    try:
        with groups.writing(url, "the map"):
            if top in files:
                files.remove(top)
                fs.put([*map(str, files)], [f"{place}/{f.relative_to(part)}" for f in files])
                fs.put_file(str(top), f"{place}/{top.name}")
            else:
                fs.put_file(part, place)
    except BaseException:
        groups.remove(url)
        raise


def _write_here(maps: Any, path: str, encoding: Encoding) -> None:
    """Write a Dataset to a new file or group on this machine."""
    if rasters.is_geotiff(path):
        to_geotiff(maps if encoding.dtype is None else maps.astype(encoding.dtype), path)
        return
    if maps.attrs.get("format") == prediction_store.FORMAT:  # whose notes are those of a store
        model = maps.attrs.get("model")
        of = {"source": f"daskgp, predictions of {model}" if model else "daskgp"}
        kept = {k: v for k, v in maps.attrs.items() if k in ("Conventions", "grid_mapping")}
        maps = maps.drop_attrs(deep=False).assign_attrs(kept | of)
    maps, own = encodings.of_file(maps, encoding, path.lower().endswith(".nc"))
    ending = path[path.rindex(".") :]
    part = f"{path[: -len(ending)]}.{uuid.uuid4().hex[:8]}{ending}"
    try:
        with groups.writing(path, "the map"):
            if ending.lower() == ".nc":
                maps.to_netcdf(part, encoding=own, engine=encodings.netcdf_engine())
            else:
                with warnings.catch_warnings():
                    # zarr warns that others may not read it: readers without it read the rest
                    warnings.filterwarnings("ignore", "Consolidated metadata")
                    maps.to_zarr(part, mode="w-", consolidated=True, encoding=own)
            refuse_taken(path)
            os.rename(part, path)
    finally:
        if os.path.isdir(part):
            shutil.rmtree(part)
        elif os.path.exists(part):
            os.remove(part)
