"""Grids in GeoTIFF files, as labelled ones: a variable for each band, read when it is asked for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import xarray as xr

from daskgp.data import crs
from daskgp.errors import InputError

ENDINGS = (".tif", ".tiff")
DEGREES = (
    {"standard_name": "longitude", "units": "degrees_east"},
    {"standard_name": "latitude", "units": "degrees_north"},
)
"""Attributes of axes of a geographic reference system."""
PLANE = tuple({"standard_name": f"projection_{one}_coordinate"} for one in crs.PLANE)
"""Attributes of axes of a projected one."""
OF_UNITS = {"metre": "m", "meter": "m"}
"""Units of length as CF spells them."""


def is_geotiff(path: Any) -> bool:
    """Return whether a path is that of a GeoTIFF file by its ending."""
    return isinstance(path, str | os.PathLike) and str(path).lower().endswith(ENDINGS)


def packages() -> Any:
    """Return rasterio; InputError without it and rioxarray, which the extra ``geo`` brings."""
    try:
        import rasterio
        import rasterio.shutil
        import rasterio.windows
        import rioxarray  # noqa: F401 - that it is there
    except ImportError as error:
        raise InputError(
            "GeoTIFF files need rioxarray and rasterio: pip install 'daskgp[geo]'"
        ) from error
    return rasterio


@contextmanager
def open_raster(source: str, names: Sequence[str] = (), chunks: Any = None) -> Iterator[xr.Dataset]:
    """Yield the grid of a GeoTIFF file, whose values are read when asked for.

    Bands have the names that describe them; a single one without has that of the file.

    Parameters
    ----------
    source : str
    names : sequence of str
        Names that a model or a source uses: axes have those of longitude and latitude, or x and y,
        among them; else they are lon and lat, or x and y.
    chunks : mapping, optional
        As xarray takes them, for Dask arrays.

    Raises
    ------
    InputError
        If the file is not on this machine, its packages are missing, or it does not say where its
        cells are.
    """
    rasterio = packages()
    path = source.removeprefix("file://")
    if "://" in path:
        raise InputError(f"{source} is not on this machine: copy the GeoTIFF here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what these packages use of others
        with rasterio.open(path) as file:
            bare = file.transform.is_identity  # as it is where the file has none
        grid = _opened(path)
    if bare:
        raise InputError(
            f"{source} does not say where its cells are: give it a place and a reference system, "
            "for example with gdal_translate -a_ullr -a_srs"
        )
    with grid:
        lost = [dim for dim in ("x", "y") if dim in grid.coords and not grid[dim].ndim]
        grid = grid.expand_dims(lost).transpose(..., "y", "x") if lost else grid  # of one cell
        if not {"x", "y"} <= {*grid.indexes}:
            raise InputError(
                f"{source} is rotated, so it has no axes: warp it to north up, for example "
                "with gdalwarp"
            )
        yield (
            _named(grid, path, names) if chunks is None else _named(grid, path, names).chunk("auto")
        )


def _opened(path: str) -> xr.Dataset:
    import rioxarray

    opened = rioxarray.open_rasterio(
        path, mask_and_scale=True, band_as_variable=True, cache=False, lock=False
    )
    assert isinstance(opened, xr.Dataset)
    return opened


def _named(grid: xr.Dataset, path: str, names: Sequence[str]) -> xr.Dataset:
    """Return a grid with names of its bands, and names and attributes of its axes."""
    said = [str(own.attrs.get("long_name", "")) for own in grid.data_vars.values()]
    bands = [str(name) for name in grid.data_vars]
    if len(bands) == 1:
        said = [said[0] or os.path.splitext(os.path.basename(path))[0]]
    reference = next(
        (own for own in grid.coords.values() if crs.says_one(own.ndim, own.attrs)), None
    )
    wkt = "" if reference is None else crs.wkt_of(reference.attrs)
    if reference is None:  # rioxarray has the name all the same, which would be a feature
        grid = grid.drop_vars(crs.NAME, errors="ignore")
    if odd := crs.oddity(wkt):
        raise InputError(
            f"{path} has angles {odd}, and not degrees from Greenwich: reproject it, such as by "
            "rio warp IN.tif OUT.tif --dst-crs EPSG:4326"
        )
    degrees = bool(wkt) and crs.is_geographic(wkt)
    axes = {name: dict[str, Any]() for name in names}
    pair = crs.across_and_up(axes) if degrees == crs.are_degrees(axes) else None
    across, up = pair or (("lon", "lat") if degrees else crs.PLANE)
    taken = {"", across, up, *map(str, grid.coords)}
    pairs = zip(bands, said, strict=True)
    named = {band: own for band, own in pairs if own not in taken and said.count(own) == 1}
    for name, own in grid.data_vars.items():
        sizes = own.encoding.get("preferred_chunks") or {}
        new = {"x": across, "y": up}
        own.encoding["preferred_chunks"] = {new.get(str(d), d): n for d, n in sizes.items()}
        if str(name) in named:
            own.attrs.pop("long_name", None)  # that is its name now
    found = grid.rename({**named, "x": across, "y": up})
    unit = _unit(wkt)
    for axis, about in zip((across, up), DEGREES if degrees else PLANE, strict=True):
        found[axis].attrs = {**about, **({"units": unit} if unit and not degrees else {})}
    return found


def _unit(wkt: str) -> str:
    """Return the unit of length of a projected reference system, "" where it is not known."""
    rasterio = packages()
    try:
        unit = str(rasterio.crs.CRS.from_wkt(wkt).linear_units) if wkt else ""
    except rasterio.errors.CRSError:
        return ""
    return "" if unit.lower() == "unknown" else OF_UNITS.get(unit.lower(), unit)
