"""Encoding of stored maps: chunks, shards, the type of values, their packing and compression."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from daskgp.checks import positive, shown, whole
from daskgp.errors import InputError, SettingError

FLOATS, PACKED = ("float64", "float32"), "int16"
HIGHEST, MISSING = 32_767, -32_768
"""Largest packed integer, and the one that stands for a missing value."""
LEVEL = 4
"""Level of compression of a netCDF file."""
Sizes = Mapping[str, int]
NONE: Sizes = MappingProxyType({})


class Encoding(NamedTuple):
    """Encoding of the arrays of a map.

    ``chunks`` are cells by dimension, and ``shards`` those of a stored object that has several
    chunks; others are as without.  ``scale_factor`` is what an integer of 1 means, and
    ``compression`` a level from 0 to 9, both for files.  None is as without.
    """

    chunks: Sizes = NONE
    shards: Sizes = NONE
    dtype: str | None = None
    scale_factor: float | None = None
    compression: int | None = None

    def together(self, dims: Sequence[str], steps: Sequence[int]) -> tuple[int, ...]:
        """Return the cells that are written at once along dimensions, where others are ``steps``.

        SettingError for sizes of other dimensions, or shards that cut chunks.
        """
        for name, sizes in (("chunks", self.chunks), ("shards", self.shards)):
            odd = next((dim for dim in sizes if dim not in dims), None)
            if odd is not None:
                raise SettingError(
                    f"{name} has a size for {odd!r}, the dimensions of the map are "
                    f"{', '.join(dims)}: give sizes of these"
                )
        for dim, size in self.shards.items():
            if size % self.chunks.get(dim, 1):
                raise SettingError(
                    f"shards of {size} along {dim!r} cut chunks of {self.chunks[dim]}: give a "
                    "multiple"
                )
        own = {**self.chunks, **self.shards}
        return tuple(own.get(dim, step) for dim, step in zip(dims, steps, strict=True))

    def inner(self, dims: Sequence[str], together: Sequence[int]) -> tuple[int, ...]:
        """Return the cells of a chunk, of which those that are written at once have some."""
        if not self.shards:
            return tuple(together)
        return tuple(self.chunks.get(dim, n) for dim, n in zip(dims, together, strict=True))

    @property
    def of_files(self) -> list[str]:
        """Names of what is given for files alone."""
        return [name for name in ("scale_factor", "compression") if getattr(self, name) is not None]


AS_GIVEN = Encoding()
"""Encoding of a map by default."""


def checked(given: Mapping[str, Any] | None) -> Encoding:
    """Return an encoding from settings; SettingError for one that is wrong."""
    if given is None:
        return AS_GIVEN
    if not isinstance(given, Mapping) or not set(given) <= set(Encoding._fields):
        raise SettingError(
            f"encoding={shown(given)}: give a mapping of {', '.join(Encoding._fields)}, such as "
            "{'chunks': {'lat': 100, 'lon': 100}, 'dtype': 'float32'}"
        )
    found = Encoding(**given)
    found = found._replace(
        chunks=_sizes("chunks", found.chunks), shards=_sizes("shards", found.shards)
    )
    if found.shards and not found.chunks:
        raise SettingError("shards hold several chunks: give chunks, too")
    if found.dtype not in (None, *FLOATS, PACKED):
        raise SettingError(
            f"dtype={shown(found.dtype)}: give one of {', '.join((*FLOATS, PACKED))}"
        )
    if (found.dtype == PACKED) != (found.scale_factor is not None):
        raise SettingError(
            "dtype int16 and scale_factor, the value of one integer step, belong together: "
            "give both, or neither"
        )
    if found.scale_factor is not None:
        positive("scale_factor", found.scale_factor)
    if found.compression is not None and whole("compression", found.compression, 0) > 9:
        raise SettingError(f"compression={found.compression}: give a level from 0 to 9")
    return found


def _sizes(name: str, sizes: Any) -> Sizes:
    if not isinstance(sizes, Mapping):
        raise SettingError(
            f"{name}={shown(sizes)}: give numbers of cells by dimension, such as {{'lat': 100}}"
        )
    return {str(dim): whole(f"{name} of {dim}", size, 1) for dim, size in sizes.items()}


def check_kind(encoding: Encoding, netcdf: bool) -> None:
    """Raise an error unless a netCDF file, or a Zarr group, can have an encoding."""
    if netcdf and encoding.shards:
        raise SettingError("shards are for Zarr: a netCDF file has chunks only: leave shards out")
    if not netcdf and encoding.compression is not None:
        raise SettingError(
            "compression is a level of netCDF, and Zarr compresses by itself: leave it out"
        )
    if netcdf and (encoding.chunks or encoding.compression) and netcdf_engine() is None:
        raise InputError(
            "a netCDF file with chunks or compression needs h5netcdf: pip install 'daskgp[io]'"
        )


def netcdf_engine() -> Any:
    """Return what xarray calls the package that writes netCDF 4; None where there is none."""
    engines = {"h5netcdf": "h5netcdf", "netCDF4": "netcdf4"}
    return next((own for name, own in engines.items() if importlib.util.find_spec(name)), None)


def of_file(maps: Any, encoding: Encoding, netcdf: bool) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Return maps cut as they are written, and what xarray takes to write them.

    Raises
    ------
    SettingError
        If sizes do not fit the maps, or integers do not hold their values.
    """
    found: dict[str, dict[str, Any]] = {}
    if netcdf:  # CF allows no missing values of coordinates
        floats = (name for name, own in maps.coords.items() if own.dtype.kind == "f")
        found = {str(name): {"_FillValue": None} for name in floats}
    for name, field in maps.data_vars.items():
        dims = tuple(map(str, field.dims))
        own = _values(str(name), field, encoding)
        if encoding.chunks:
            steps = encoding.together(dims, field.shape)
            cells = encoding.inner(dims, steps)
            if netcdf:
                own["chunksizes"] = tuple(map(min, cells, field.shape))
            else:
                own |= {"chunks": cells} | ({"shards": steps} if encoding.shards else {})
            if field.chunks is not None:  # no two tasks write to one object
                maps = maps.assign({name: field.chunk(dict(zip(dims, steps, strict=True)))})
        level = LEVEL if encoding.compression is None else encoding.compression
        if netcdf and level and field.ndim and netcdf_engine() is not None:
            own |= {"zlib": True, "complevel": level, "shuffle": True}
        found[str(name)] = own
    return maps, found


def _values(name: str, field: Any, encoding: Encoding) -> dict[str, Any]:
    """Return how the values of a field are stored."""
    if encoding.dtype is None:
        return {}
    if encoding.dtype in FLOATS:
        return {"dtype": encoding.dtype, "_FillValue": np.nan}
    assert encoding.scale_factor is not None
    scale = float(encoding.scale_factor)
    low, high = float(field.min()), float(field.max())
    if np.isinf([low, high]).any():
        raise SettingError(f"int16 cannot hold {name!r}, which has infinite values: choose float32")
    middle = 0.0 if np.isnan(low) else round(0.5 * (low + high) / scale) * scale
    most = max(abs(low - middle), abs(high - middle))
    if most > HIGHEST * scale:
        raise SettingError(
            f"int16 with scale_factor {scale:g} cannot hold {name!r}, which goes from {low:g} to "
            f"{high:g}: give at least {most / HIGHEST:.2g}"
        )
    packed = {"dtype": PACKED, "scale_factor": scale, "add_offset": middle}
    return {**packed, "_FillValue": MISSING}
