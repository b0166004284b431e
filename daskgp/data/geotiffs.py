"""GeoTIFF files: maps that are written as cloud-optimised ones, block by block."""

from __future__ import annotations

import errno
import itertools
import logging
import math
import os
import shutil
import uuid
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr

from daskgp.data import crs, gridded, grids
from daskgp.data.rasters import packages
from daskgp.data.stores import groups
from daskgp.errors import FullDiskError, InputError, StoreError

logger: logging.Logger = logging.getLogger("daskgp")

Names: TypeAlias = tuple[str, ...]

ADDED = ("target", "quantile", "sample", "class")
"""Dimensions that predictions have beside those of their grid, which become bands."""
DEGREES = "EPSG:4326"
"""Reference system of longitudes and latitudes that say none."""
EVEN = 0.01
"""Share of a cell by which cells may be off an even axis."""
BLOCK = 2**20
"""Values that are written at a time where the chunks of a map do not tell."""
TILES = (512, 256, 128, 64)
"""Sides of tiles, of which the largest is taken whose bands are at most TILE_BYTES."""
TILE_BYTES = 2**26
ENV: dict[str, int | str] = {"GDAL_CACHEMAX": 2**26, "GDAL_PAM_ENABLED": "NO"}
"""Bytes of tiles that GDAL holds, and that it writes no file beside another."""
WHILE_WRITTEN = 2.4
"""Most bytes for each of the maps, without compression, as the plain file is copied."""
OF_MAPS, OF_BANDS = ("source", "kernel"), ("long_name", "standard_name", "comment")
"""Attributes that become tags."""


class Axis(NamedTuple):
    """An axis of a map: the places of its cells in the file, and where and how wide the first is.

    ``step`` is positive.
    """

    dim: Hashable
    places: np.ndarray
    first: float
    step: float


class Layout(NamedTuple):
    """Layout of a map in a file: axes across, from west, and up, from north, and reference system.

    ``bands`` are the dimensions, beside those that predictions add, whose values have bands each.
    """

    across: Axis
    up: Axis
    wkt: str
    bands: tuple[Hashable, ...]


def layout_of(
    maps: xr.Dataset, what: str, bands: Sequence[Hashable] = (), system: Any = None
) -> Layout:
    """Return how maps lie in a file.

    Parameters
    ----------
    maps : Dataset
        Maps, or the coordinates of a grid alone.
    what : str
        What messages call it.
    bands : sequence of str
        Dimensions whose values become bands.
    system : str or int, optional
        Reference system in words of rasterio, such as "EPSG:32632", where the maps say none.

    Raises
    ------
    InputError
        If the maps are on no even grid of two dimensions, or it is not clear which is across.
    """
    unknown = [str(dim) for dim in bands if dim not in maps.dims]
    if unknown:
        raise InputError(
            f"bands names {unknown[0]!r}, which is not a dimension of {what}: choose among "
            f"{', '.join(map(str, maps.dims))}"
        )
    axes = {str(d): maps[d].attrs for d in maps.dims if d in maps.coords and d not in bands}
    pair = crs.across_and_up(axes)
    if pair is None and (twisted := grids.curvilinear(maps)):
        raise InputError(
            f"{what} is on a curvilinear grid, by {' and '.join(twisted)}, which a GeoTIFF cannot "
            "hold: predict on a grid of one-dimensional coordinates"
        )
    if pair is None:
        raise InputError(
            f"it is not clear which dimensions of {what} go across and up a map: name them lon and "
            f"lat, or x and y; they are {', '.join(map(str, maps.dims)) or 'none'}"
        )
    others = {
        str(dim): n for dim, n in maps.sizes.items() if dim not in (*pair, *bands, *ADDED) and n > 1
    }
    if others:
        dim, n = next(iter(others.items()))
        raise InputError(
            f"{what} has {n} values along {dim!r}, and a GeoTIFF holds one map: choose one of them "
            f"(maps.isel({dim}=-1), --extent {dim}=VALUE of predict, --at {dim}=VALUE of map), or "
            f"make bands of all (to_geotiff(..., bands={dim!r}), or daskgp map --bands {dim})"
        )
    wkt = _system(maps, system, axes, what)
    across = _axis(maps[pair[0]], what, turned=bool(wkt) and crs.is_geographic(wkt))
    up = _axis(maps[pair[1]], what, falling=True)
    return Layout(across, up, wkt, tuple(bands))


def _system(maps: xr.Dataset, system: Any, axes: Mapping[str, Mapping[str, Any]], what: str) -> str:
    """Return the well-known text of the reference system of maps, "" where nothing says one."""
    rasterio = packages()
    known = crs.wkt_of(grids.reference_of(maps)[1])
    given = None
    if system is not None:
        try:
            given = rasterio.crs.CRS.from_user_input(system).to_wkt()
        except (rasterio.errors.CRSError, ValueError) as error:
            raise InputError(
                f"crs={system!r} is not a coordinate reference system: give one such as "
                "'EPSG:32632'"
            ) from error
    if known and given and not crs.same(known, given):
        raise InputError(
            f"{what} is in {crs.name_of(known)} and crs={system!r}: leave crs out, or reproject "
            "the map"
        )
    if given and not known and crs.are_degrees(axes) and not crs.is_geographic(given):
        raise InputError(
            f"{what} has axes in degrees, and crs={system!r} is of {crs.name_of(given)}: leave crs "
            "out, or reproject the map"
        )
    if known or given:
        _refuse_unheld(rasterio, str(given or known), what)
        return str(given or known)
    if crs.are_degrees(axes):
        return str(rasterio.crs.CRS.from_user_input(DEGREES).to_wkt())
    logger.warning(
        "%s states no coordinate reference system, so its GeoTIFF has none: give crs=, such "
        "as 'EPSG:32632' (--crs of daskgp map)",
        what,
    )
    return ""


def _refuse_unheld(rasterio: Any, wkt: str, what: str) -> None:
    """Raise InputError for a system that a GeoTIFF cannot hold, such as one of a turned pole."""
    try:
        with rasterio.Env(GDAL_PAM_ENABLED="NO"), rasterio.MemoryFile() as file:
            corner = rasterio.Affine(2.0, 0.0, 1.0, 0.0, -2.0, 1.0)
            profile = {"driver": "GTiff", "width": 1, "height": 1, "count": 1, "dtype": "uint8"}
            file.open(crs=wkt, transform=corner, **profile).close()
            with file.open() as made:
                held = made.crs is not None
    except rasterio.errors.CRSError:
        held = False
    if not held:
        raise InputError(
            f"{what} is in a coordinate reference system that a GeoTIFF cannot hold "
            f"({crs.name_of(wkt)}): reproject the map (rioxarray's rio.reproject), or write .nc or "
            ".zarr"
        )


def _axis(axis: xr.DataArray, what: str, falling: bool = False, turned: bool = False) -> Axis:
    """Return an axis with its cells in rising or falling order; InputError if they are uneven.

    Longitudes are ``turned`` to be from -180 to 180 degrees where all of them then are in a row.
    """
    if axis.dtype.kind not in "fiu" or axis.ndim != 1 or axis.size < 2:
        raise InputError(
            f"coordinate {str(axis.name)!r} of {what} has {axis.size} value of {axis.dtype}: a "
            "GeoTIFF needs numbers, two or more, along either side"
        )
    values = np.asarray(axis.values, np.float64)
    if turned and values.max() > 180.0:
        west = np.mod(values + 180.0, 360.0) - 180.0
        if _uneven(np.sort(west)) is None:
            values = west
            logger.info("longitudes of %s are written from -180 to 180 degrees", what)
        else:
            logger.warning(
                "longitudes of %s go to %g: programs show the cells beyond 180 degrees to "
                "the east of the map, not in the west",
                what,
                values.max(),
            )
    order = np.argsort(values)
    uneven = _uneven(values[order])
    if uneven is not None:
        raise InputError(
            f"coordinate {str(axis.name)!r} of {what} is not evenly spaced ({uneven}), but "
            "the cells of a GeoTIFF are: predict on a grid of even steps (--resolution)"
        )
    n, ends = len(values), (values.min(), values.max())
    places = np.empty(n, np.int64)
    places[order[::-1] if falling else order] = np.arange(n)
    return Axis(axis.name, places, ends[1] if falling else ends[0], (ends[1] - ends[0]) / (n - 1))


def _uneven(values: np.ndarray) -> str | None:
    """Return what is uneven of rising values, None if nothing is."""
    if not np.isfinite(values).all():
        return "a value is missing"
    step = (values[-1] - values[0]) / (len(values) - 1)
    off = np.abs(values - (values[0] + step * np.arange(len(values))))
    if step > 0 and off.max() <= EVEN * step:
        return None
    steps = np.diff(values)
    return f"its steps go from {steps.min():g} to {steps.max():g}"


class Band(NamedTuple):
    """A band: a variable, and places along its dimensions beside those of a map."""

    name: Hashable
    at: dict[Hashable, int]
    description: str


def _bands(maps: xr.Dataset, layout: Layout, what: str) -> list[Band]:
    """Return the bands of maps: those of a variable that names others before these."""
    pair = (layout.across.dim, layout.up.dim)
    first = [name for name, own in maps.data_vars.items() if "ancillary_variables" in own.attrs]
    beside = [one for name in first for one in str(maps[name].attrs["ancillary_variables"]).split()]
    order = [name for name in (*first, *beside, *maps.data_vars) if name in maps.data_vars]
    found = []
    for name in dict.fromkeys(order):
        field = maps[name]
        if not field.ndim:
            continue
        if not {*pair} <= {*field.dims}:
            raise InputError(
                f"variable {str(name)!r} of {what} lies on {', '.join(map(str, field.dims))}, not "
                f"on {pair[1]}, {pair[0]}: leave it out, maps.drop_vars({str(name)!r})"
            )
        if field.dtype.kind not in "fiub":
            raise InputError(
                f"variable {str(name)!r} of {what} holds {field.dtype}: a GeoTIFF has numbers, "
                f"leave it out, maps.drop_vars({str(name)!r})"
            )
        others = [dim for dim in field.dims if dim not in pair]
        for index in itertools.product(*(range(field.sizes[dim]) for dim in others)):
            at = dict(zip(others, index, strict=True))
            said = [
                f"{dim}={_label(field, dim, i)}" for dim, i in at.items() if field.sizes[dim] > 1
            ]
            found.append(Band(name, at, " ".join([str(name), *said])))
    if not found:
        raise InputError(f"{what} has no variable with a map: choose another one")
    return found


def _label(field: xr.DataArray, dim: Hashable, index: int) -> str:
    """Return the value of a coordinate as text; its number where there is none."""
    if dim not in field.coords:
        return str(index)
    value = field[dim].values[index]
    if isinstance(value, np.datetime64):
        text = np.datetime_as_string(value, "s")
        return str(text).removesuffix("T00:00:00")
    return f"{value:g}" if isinstance(value, np.floating) else str(value)


def bytes_of(layout: Layout, bands: int) -> int:
    """Return how many bytes maps take on a disk while their file is written, at most."""
    side, shape = _side(layout, bands), (len(layout.up.places), len(layout.across.places))
    tiles = math.prod(-(-n // side) for n in shape)
    return int(WHILE_WRITTEN * tiles * side**2 * 8 * bands)


def check_room(path: str, needed: int) -> None:
    """Raise FullDiskError unless a disk has room for a file, of which GDAL does not always tell."""
    folder = os.path.dirname(os.path.abspath(path))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FullDiskError(
            f"cannot write the map {path}: it takes up to {needed / 1e6:,.0f} MB while it is "
            f"written and the disk has {free / 1e6:,.0f} MB left: free some space or choose "
            "another path"
        )


def _side(layout: Layout, bands: int) -> int:
    """Return the side of tiles: the largest whose bands are not too large, nor the map far less."""
    most = max(len(layout.up.places), len(layout.across.places))
    fitting = [s for s in TILES if s < 2 * most and s * s * 8 * bands <= TILE_BYTES]
    return fitting[0] if fitting else TILES[-1]


def write(maps: xr.Dataset, layout: Layout, path: str, what: str) -> None:
    """Write maps to a new cloud-optimised GeoTIFF, which appears once it is whole.

    They are read and written along their chunks, one after the other.

    Raises
    ------
    InputError
        If a variable is no map of numbers.
    StoreError
        If the disk is full, or a file of this name has come in the meantime.
    """
    rasterio = packages()
    bands = _bands(maps, layout, what)
    check_room(path, bytes_of(layout, len(bands)))
    dtype = np.result_type(np.float32, *(maps[band.name].dtype for band in bands))
    stem, side = f"{os.path.splitext(path)[0]}.{uuid.uuid4().hex[:8]}", _side(layout, len(bands))
    plain, whole = f"{stem}.plain.tif", f"{stem}.tif"
    across, up = layout.across, layout.up
    west, north = across.first - across.step / 2, up.first + up.step / 2
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "width": len(across.places),
        "height": len(up.places),
        "count": len(bands),
        "dtype": dtype.name,
        "nodata": np.nan,
        "transform": rasterio.Affine(across.step, 0.0, west, 0.0, -up.step, north),
        "crs": layout.wkt or None,
        "tiled": True,
        "blockxsize": side,
        "blockysize": side,
        "interleave": "band",
        "bigtiff": "IF_SAFER",
    }
    optimised = {"compress": "DEFLATE", "predictor": "YES", "blocksize": side}
    optimised |= {"overview_resampling": "AVERAGE", "bigtiff": "IF_SAFER"}
    try:
        with _writing(path, rasterio):
            with rasterio.open(plain, "w", **profile) as file:
                _describe(file, maps, bands)
                for values, numbers, (row, column) in _blocks(maps, layout, bands, dtype, what):
                    height, width = values.shape[1:]
                    place = rasterio.windows.Window(column, row, width, height)
                    file.write(values, numbers, window=place)
            rasterio.shutil.copy(plain, whole, driver="COG", **optimised)
            _check_end(rasterio, plain, whole)
            if os.path.lexists(path):
                raise StoreError(f"{path} exists already: remove it or choose another name")
            os.rename(whole, path)
    finally:
        for one in (plain, whole):
            if os.path.exists(one):
                os.remove(one)


@contextmanager
def _writing(path: str, rasterio: Any) -> Iterator[None]:
    """Turn what GDAL raises as it writes a file into a one-line StoreError."""
    quiet = logging.getLogger("rasterio")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)  # what matters of it is raised
    try:
        with (
            groups.writing(path, "the map"),
            rasterio.Env(**ENV),
            warnings.catch_warnings(),
        ):
            # of steps of 1 from 0, which GeoTIFF files hold as others
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            yield
    except (rasterio.errors.RasterioError, rasterio._err.CPLE_BaseError) as error:
        raise StoreError(
            f"cannot write the map {path}: {groups.first_line(error)}: check that its disk has room"
        ) from error
    finally:
        quiet.setLevel(level)


def _check_end(rasterio: Any, plain: str, whole: str) -> None:
    """Raise OSError unless the ends of both files are there, which a full disk leaves out."""
    ends = []
    for one in (plain, whole):
        with rasterio.open(one) as file:
            last = rasterio.windows.Window(file.width - 1, file.height - 1, 1, 1)
            ends.append(file.read(window=last))
            side, tall, wide = file.block_shapes[0][0], file.height, file.width
            tiles = -(-tall // side) * -(-wide // side) * file.count
            least = tiles * side**2 * np.dtype(file.dtypes[0]).itemsize if one == plain else 0
        if os.path.getsize(one) < least:
            raise OSError(errno.ENOSPC, "the end is missing")
    if not np.array_equal(ends[0], ends[1], equal_nan=True):
        raise OSError(errno.ENOSPC, "the end is missing")


def _describe(file: Any, maps: xr.Dataset, bands: Sequence[Band]) -> None:
    """Write names, units and attributes of bands, and where the maps come from."""
    file.update_tags(**{key: str(maps.attrs[key]) for key in OF_MAPS if key in maps.attrs})
    file.descriptions = tuple(band.description for band in bands)
    file.units = tuple(str(maps[band.name].attrs.get("units", "")) for band in bands)
    for i, band in enumerate(bands, 1):
        own = maps[band.name].attrs
        file.update_tags(i, **{key: str(own[key]) for key in OF_BANDS if key in own})


def _blocks(
    maps: xr.Dataset, layout: Layout, bands: Sequence[Band], dtype: np.dtype, what: str
) -> Iterator[tuple[np.ndarray, list[int], tuple[int, int]]]:
    """Yield values (k, h, w) of k bands, the numbers of these, and the row and column of the first.

    All variables of a block are computed together.
    """
    across, up = layout.across, layout.up
    maps = maps[list(dict.fromkeys(band.name for band in bands))]
    dims = [up.dim, across.dim, *(dim for dim in maps.dims if dim in layout.bands)]
    steps = _steps(maps, dims)
    cuts = [[slice(i, i + step) for i in range(0, maps.sizes[dim], step)]
            for dim, step in zip(dims, steps, strict=True)]  # fmt: skip
    for box in itertools.product(*cuts):
        part = dict(zip(dims, box, strict=True))
        with gridded.readable(what):
            block = maps.isel(part).load()
        rows, columns = [*_runs(up.places[box[0]])], [*_runs(across.places[box[1]])]
        own = _within(bands, part)
        fields = [
            block[band.name]
            .isel({dim: i - part[dim].start if dim in part else i for dim, i in band.at.items()})
            .transpose(up.dim, across.dim)
            .values
            for band, _ in own
        ]
        values = np.stack(fields).astype(dtype, copy=False)
        for (rows_from, row), (columns_from, column) in itertools.product(rows, columns):
            piece = np.ascontiguousarray(values[:, rows_from][:, :, columns_from])
            yield piece, [number for _, number in own], (row, column)


def _within(bands: Sequence[Band], part: Mapping[Hashable, slice]) -> list[tuple[Band, int]]:
    """Return the bands, with their numbers, whose places are inside of a part."""
    return [
        (band, i)
        for i, band in enumerate(bands, 1)
        if all(part[d].start <= k < part[d].stop for d, k in band.at.items() if d in part)
    ]


def _steps(maps: xr.Dataset, dims: Sequence[Hashable]) -> list[int]:
    """Return the sizes of blocks along dimensions: those of chunks, or few values where none are.

    Chunks of few values are taken together along the first two dimensions.
    """
    widest = max(maps.data_vars.values(), key=lambda field: field.size)
    chunks = {dim: max(sizes) for dim, sizes in maps.chunksizes.items()}
    chunks = chunks or dict(widest.encoding.get("preferred_chunks") or {})
    steps = [min(chunks.get(dim, n), n) for dim, n in ((d, maps.sizes[d]) for d in dims)]
    if not chunks:
        steps[2:] = [1 for _ in steps[2:]]
        steps[0] = max(1, min(steps[0], BLOCK // steps[1]))
    for i in (1, 0):
        room = BLOCK // math.prod(steps)
        if room > 1 and chunks:
            steps[i] = min(steps[i] * room, maps.sizes[dims[i]])
    return steps


def _runs(places: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the numbers of cells that lie beside one another in a file, in its order, and where.

    Examples
    --------
    >>> [(own.tolist(), first) for own, first in _runs(np.array([6, 7, 0, 1]))]
    [([2, 3], 0), ([0, 1], 6)]
    """
    order = np.argsort(places)
    for own in np.split(order, 1 + np.flatnonzero(np.diff(places[order]) != 1)):
        yield own, int(places[own[0]])
