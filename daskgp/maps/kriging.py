"""Interpolation of values of any source to a map on a labelled grid, with a model of its choice."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import xarray as xr
from sklearn.base import clone

from daskgp import data
from daskgp.checks import meant, positive, shown, text_of, whole
from daskgp.data import crs, feature_units, gridded, grids
from daskgp.data.convert import sources
from daskgp.data.convert.table import TIMES, Table
from daskgp.data.rows import COLUMNS
from daskgp.errors import InputError, SettingError
from daskgp.estimators import requirements
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.loading import ESTIMATORS
from daskgp.fit import work
from daskgp.fit.named import Named
from daskgp.fit.scratch import scratch_rows
from daskgp.maps import background as backgrounds
from daskgp.maps import reach, region, rows
from daskgp.models.columns import KILOMETRES, kind_of_name
from daskgp.typing import Path

if TYPE_CHECKING:
    from daskgp.kernels import Kernel

logger: logging.Logger = logging.getLogger("daskgp")

EXACT = 2_000
"""Most values of which "auto" takes the exact Gaussian process."""

LISTED = 5
"""Columns that a line lists at most."""

CELL = 16
"""Bytes of a cell: those of its mean and standard deviation."""
Names: TypeAlias = tuple[str, ...]


class Asked(NamedTuple):
    """Source, target and features of a map, and the grid that it is on."""

    source: Any
    target: str
    features: Names
    grid: xr.Dataset
    left_out: Names = ()
    """Columns that could be features, which the grid does not have."""

    @property
    def coords(self) -> Mapping[Hashable, xr.DataArray]:
        """Coordinates of the map."""
        dims = {dim for name in self.features for dim in self.grid[name].dims}
        return {name: own for name, own in self.grid.coords.items() if {*own.dims} <= dims}


@overload
def interpolate(
    source: xr.DataTree, like: Any = ..., *, return_model: Literal[False] = ..., **how: Any
) -> xr.DataTree: ...
@overload
def interpolate(
    source: xr.DataTree, like: Any = ..., *, return_model: Literal[True], **how: Any
) -> tuple[xr.DataTree, dict[str, GaussianProcess]]: ...
@overload
def interpolate(
    source: Any,
    like: Any = ...,
    *,
    target: str | None = ...,
    features: Any = ...,
    method: str | GaussianProcess = ...,
    kernel: Kernel | str | None = ...,
    background: xr.DataArray | Path | None = ...,
    mask: Any = ...,
    barriers: Any = ...,
    max_std: float | None = ...,
    min_neighbours: int | None = ...,
    include_noise: bool = ...,
    return_model: Literal[False] = ...,
    y_variance: str | None = ...,
    sample_weight: str | None = ...,
    trials: str | None = ...,
    exposure: str | None = ...,
    offset: str | None = ...,
    lower: str | None = ...,
    upper: str | None = ...,
    **settings: Any,
) -> xr.Dataset: ...
@overload
def interpolate(
    source: Any,
    like: Any = ...,
    *,
    target: str | None = ...,
    features: Any = ...,
    method: str | GaussianProcess = ...,
    kernel: Kernel | str | None = ...,
    background: xr.DataArray | Path | None = ...,
    mask: Any = ...,
    barriers: Any = ...,
    max_std: float | None = ...,
    min_neighbours: int | None = ...,
    include_noise: bool = ...,
    return_model: Literal[True],
    y_variance: str | None = ...,
    sample_weight: str | None = ...,
    trials: str | None = ...,
    exposure: str | None = ...,
    offset: str | None = ...,
    lower: str | None = ...,
    upper: str | None = ...,
    **settings: Any,
) -> tuple[xr.Dataset, GaussianProcess]: ...
def interpolate(
    source: Any,
    like: Any = None,
    *,
    target: str | None = None,
    features: Any = None,
    method: str | GaussianProcess = "auto",
    kernel: Kernel | str | None = None,
    background: xr.DataArray | Path | None = None,
    mask: Any = None,
    barriers: Any = None,
    max_std: float | None = None,
    min_neighbours: int | None = None,
    include_noise: bool = False,
    return_model: bool = False,
    y_variance: str | None = None,
    sample_weight: str | None = None,
    trials: str | None = None,
    exposure: str | None = None,
    offset: str | None = None,
    lower: str | None = None,
    upper: str | None = None,
    **settings: Any,
) -> Any:
    """Return the map of a target on a grid: its mean and standard deviation.

    The hyper-parameters of a Gaussian process are trained on the values of the source, which is
    then predicted on the grid (kriging).  With a ``background``, the process is that of the
    difference from it, which is optimal interpolation.

    Parameters
    ----------
    source : DataFrame, Dataset, DataArray, DataTree, str, path or other source of `convert`
        Scattered rows or a grid with gaps, in memory, lazy or in files.  Each node of a DataTree
        that has the target is a source of its own.
    like : Dataset, DataArray, mapping of str to array, str or path, optional
        Grid of the map: its coordinates, and those of its variables that the source has too, such
        as an elevation, are features.  A map is lazy where the grid is chunked.  Default the grid
        of the source itself.
    target : str, optional
        Name of the values; default the only column or variable that is no feature.
    features : sequence of str, optional
        Names of what the target depends on; default all that both source and grid have.
    method : str or estimator
        Name of a method, such as "sgpr", or an estimator to fit; "auto" takes `ExactGP` for up to
        2,000 values, and `VecchiaGP` for more.
    kernel : Kernel or str, optional
        Kernel of the method.
    background : DataArray, str or path, optional
        First guess: a field on a grid of some of the features, which is interpolated linearly to
        rows and cells, or the path of a file with that field alone, or the name of a variable that
        both source and grid have.  It is subtracted from the target before, and added to the mean
        after; rows and cells outside it are left out.
    mask : DataArray, str, path, mapping or polygons, optional
        Where the map is wanted: a field of booleans over some of the features, whose nearest value
        counts, up to half a step away; the name of such a variable of the grid, in which NaN is
        outside, too; or polygons over longitude and latitude, or x and y: the path of a GeoJSON
        file, what one says, or an object with ``__geo_interface__``.  Rows and cells outside are
        left out.
    barriers : str, path or mapping, optional
        What rows and cells do not see one another across, such as land between two seas: the path
        of a GeoJSON file of polygons over longitude and latitude, or x and y, what such a file
        says, or an object with ``__geo_interface__``.  It is a setting of `VecchiaGP`, which "auto"
        then takes.  Rows and cells inside are left out.
    max_std : float, optional
        Largest standard deviation, in units of the target, up to which cells have values.
    min_neighbours : int, optional
        Number of rows that a cell needs within reach, the distance at which the correlation of the
        learned kernel is half-way down, or values differ as those of half the rows do, if that is
        less; others have no values.
    include_noise : bool
        Whether the deviation is that of new values, in place of that of the field; always so with a
        likelihood of counts, classes or amounts, whose map is of rates, probabilities or amounts.
    return_model : bool
        Whether to return the fitted model, too.
    y_variance, sample_weight, trials, exposure, offset, lower, upper : str, optional
        Columns of the source that ``fit`` takes beside the target.
    **settings
        Settings of the method.

    Returns
    -------
    maps : Dataset or DataTree
        Mean by the name of the target and standard deviation by ``<target>_std``, with units and
        names of the source and the coordinates of the grid.
    model : estimator, or dict of path and estimator for a DataTree
        If ``return_model``.

    Raises
    ------
    InputError, SettingError
        If names, grid, background, mask or barriers do not fit the source, or a setting is wrong.

    Examples
    --------
    >>> import numpy as np, pandas as pd, daskgp
    >>> rng = np.random.default_rng(0)
    >>> rows = pd.DataFrame({"x": rng.uniform(0, 6, 80), "y": rng.uniform(0, 6, 80)})
    >>> rows["height"] = np.sin(rows.x) + np.cos(rows.y)
    >>> grid = {"x": np.linspace(0, 6, 13), "y": np.linspace(0, 6, 7)}
    >>> maps = daskgp.interpolate(rows, grid)
    >>> sorted(maps), dict(maps.sizes)
    (['height', 'height_std'], {'x': 13, 'y': 7})
    """
    beside = {"y_variance": y_variance, "weight": sample_weight, "trials": trials}
    beside |= {"exposure": exposure, "offset": offset, "lower": lower, "upper": upper}
    given = {name: own for name, own in beside.items() if own is not None}
    for name, own in given.items():
        if not isinstance(own, str):
            raise SettingError(f"{name} is {shown(own)}: give the name of a column of the source")
    if barriers is not None:
        check_barriers(method)
        settings = {**settings, "barriers": barriers}
    return mapped(
        source,
        like,
        target=target,
        features=features,
        method=method,
        kernel=kernel,
        background=background,
        mask=mask,
        max_std=max_std,
        min_neighbours=min_neighbours,
        include_noise=include_noise,
        return_model=return_model,
        columns=given,
        **settings,
    )


def mapped(
    source: Any,
    like: Any = None,
    *,
    target: str | None = None,
    features: Any = None,
    method: str | GaussianProcess = "auto",
    kernel: Kernel | str | None = None,
    background: xr.DataArray | Path | None = None,
    mask: Any = None,
    max_std: float | None = None,
    min_neighbours: int | None = None,
    include_noise: bool = False,
    return_model: bool = False,
    columns: Mapping[str, Any],
    **settings: Any,
) -> Any:
    """Return the map of a target on a grid, see `interpolate`.

    ``columns`` are those that rows have beside the target, and ``dates``, as `Named` has them.
    """
    _check(method, kernel, max_std, min_neighbours, settings)
    source, like, background, mask = map(text_of, (source, like, background, mask))
    if isinstance(source, xr.DataTree):
        given = {key: value for key, value in locals().items() if key not in ("source", "settings")}
        return _of_tree(source, {**given, **settings})
    if grids.is_xarray(source):
        source = grids.as_dataset(source)
    first_guess = backgrounds.named(background)
    background = backgrounds.opened(background)
    asked = asked_for(source, like, target, features, background, columns)
    attributes, known = _said(asked, min_neighbours)
    backgrounds.check_unit(background, asked.grid, attributes, asked.target)
    if not asked.grid.chunks:
        sizes = {d: n for own in asked.features for d, n in asked.grid[own].sizes.items()}
        work.refuse_large_map(math.prod(sizes.values()), CELL)
    model = _model(method, kernel, known, settings)
    work.check_columns(model.recipe(), [name for name in COLUMNS if name in columns])
    beside = _beside(columns, background)
    asked, regions, added = _prepared(asked, mask, background, model, beside)
    logger.info("%s of %r on %d values of %s", model, asked.target, known, list(asked.features))
    _fit(model, asked, columns)
    if asked.left_out:
        _say_left_out(asked.left_out)
    used = {*asked.features, asked.target}  # the target tells chunks and the order of dimensions
    grid = asked.grid.drop_vars([name for name in asked.grid.data_vars if name not in used])
    include_noise = include_noise or has_link(model)
    mean, std = model.predict(grid, return_std=True, include_noise=include_noise)
    kept = [region.cells(asked.grid) for region in regions]
    if max_std is not None:
        kept.append(std <= max_std)
    if min_neighbours is not None:
        kept.append(_reached(model, asked, grid, min_neighbours))
    mean, std = _left(mean, std, kept)
    if added is not None:
        with xr.set_options(keep_attrs=True):
            there = added.broadcast_like(mean).transpose(*mean.dims)
            mean, std = mean + there, std.where(there.notnull())
    maps = _described(mean, std, asked, attributes, model, include_noise)
    if background is not None:
        maps.attrs["background"] = first_guess
    return (maps, model) if return_model else maps


def _reached(model: GaussianProcess, asked: Asked, grid: xr.Dataset, number: int) -> xr.DataArray:
    """Return whether cells have so many rows within reach; say so if all have."""
    places = rows.fitted_places(asked.source, asked.target, model)
    near = reach.near(model, places, grid, number)
    if near.chunks is None and bool(near.all()):
        logger.warning(
            "min_neighbours=%d leaves out no cell: all are within reach of the rows; max_std and "
            "mask leave out others",
            number,
        )
    return near


def _left(
    mean: xr.DataArray, std: xr.DataArray, kept: Sequence[xr.DataArray]
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return maps without values of cells that are not kept by all; say so if none is left."""
    first, last = mean, std
    for own in kept:
        first, last = first.where(own), last.where(own)
    if kept and first.chunks is None and not bool(first.notnull().any()):
        logger.warning(
            "no cell of the map is left with a value (standard deviations go from %.3g to "
            "%.3g): change mask, max_std or min_neighbours",
            float(std.min()),
            float(std.max()),
        )
    return first, last


def _beside(columns: Mapping[str, Any], background: Any) -> Names:
    """Return the names of columns that rows have beside the target."""
    names = {name: own for name, own in columns.items() if name != "dates"}
    wrong = [name for name in names if name not in ("y_std", "y_variance", "weight")]
    if wrong and background is not None:
        raise SettingError(
            f"background is subtracted from the target, which does not go with {wrong[0]}: "
            "leave one of them out"
        )
    return tuple(dict.fromkeys(names.values()))


def _fit(model: GaussianProcess, asked: Asked, columns: Mapping[str, Any]) -> None:
    """Fit a model to the source, with what its rows have beside the target."""
    names = list(asked.features)
    if not columns:
        model.fit(asked.source, asked.target, features=names)
        return
    read: dict[str, Any] = {"geographic": model.geographic, "fill_values": model.fill_values}
    training = Named(asked.source, asked.target, names, **read, **columns)
    with (
        scratch_rows(model.store) as url,
        training.converted(url, progress=False) as (X, y, _),
    ):
        model.fit(X, y)


def _check(
    method: Any,
    kernel: Any,
    max_std: float | None,
    min_neighbours: int | None,
    settings: Mapping[str, Any],
) -> None:
    """Raise SettingError for settings that are wrong whatever the source."""
    if isinstance(method, str):
        _refuse_unknown(method, settings)
    elif not isinstance(method, GaussianProcess):
        raise SettingError(
            f"method is {shown(method)}: give the name of a method, or an estimator such as "
            "daskgp.VecchiaGP()"
        )
    elif kernel is not None or settings:
        named = ", ".join([*(["kernel"] if kernel is not None else []), *settings])
        raise SettingError(
            f"method is an estimator, which has settings of its own: give it {named}"
        )
    if max_std is not None:
        positive("max_std", max_std)
    if min_neighbours is not None:
        whole("min_neighbours", min_neighbours, 1)


def _refuse_unknown(method: str, settings: Mapping[str, Any]) -> None:
    """Raise SettingError for a method that there is not, or a setting that is most like an own."""
    if method != "auto" and not ESTIMATORS.knows(method):
        hint = meant(method, ("auto", *ESTIMATORS), f"choose one of auto, {', '.join(ESTIMATORS)}")
        raise SettingError(f"unknown method {method!r}: {hint}")
    own = tuple(inspect.signature(interpolate).parameters)
    kinds = ("exact", "vecchia") if method == "auto" else (method,)
    known = {name for kind in kinds for name in requirements.defaults(ESTIMATORS.find(kind))}
    for name in settings:
        hint = meant(name, (*own, *known))
        if name not in known and hint in {meant(one, own) for one in own}:
            raise SettingError(f"unknown setting {name!r} of interpolate: {hint}")


def check_barriers(method: Any) -> None:
    """Raise SettingError unless a method takes barriers."""
    if isinstance(method, str) and method != "auto":
        kind = ESTIMATORS.find(method)
        if "barriers" not in requirements.defaults(kind):
            raise SettingError(
                f"barriers are a setting of VecchiaGP, which conditions rows on those that they "
                f"see, and not of {kind.__name__}: choose method='vecchia' or 'auto'"
            )


def has_link(model: GaussianProcess) -> bool:
    """Return whether the mean of new values is another one than that of the field."""
    likelihood, f = model.solved_.likelihood, np.array([[0.3]])
    return likelihood is not None and not np.allclose(likelihood.response(f, np.zeros(1))[0], f)


def asked_for(
    source: Any,
    like: Any,
    target: str | None,
    features: Any,
    background: Any,
    columns: Mapping[str, Any] = MappingProxyType({}),
) -> Asked:
    """Return source, target, features and grid by what is given and what is there."""
    with sources.open_table(source, () if target is None else (target,)) as table:
        has = table.columns
    if like is None:
        if not table.gridded:
            raise InputError(
                "the source has no grid of its own: give one as like= (--like or --resolution), "
                "such as {'lon': np.arange(5, 15, 0.1), 'lat': np.arange(45, 55, 0.1)}, with its "
                f"columns {', '.join(has)}"
            )
        like = source
    grid = grids.with_reference(_grid(like, has))
    of_grid = grids.reference_of(grid)[1]
    crs.refuse_other(of_grid, table.reference, "the grid", "the source")
    if isinstance(background, xr.DataArray):
        first = grids.reference_of(background)[1]
        crs.refuse_other(first, of_grid or table.reference, "the background", "the grid")
    there = tuple(map(str, (*grids.dims_of(grid), *grid.coords, *grid.data_vars)))
    common = tuple(dict.fromkeys(name for name in there if name in has))
    beside = {background} if isinstance(background, str) else set[str]()
    beside |= {own for name, own in columns.items() if name != "dates"}
    if features is not None:
        wanted = (features,) if isinstance(features, str) else tuple(map(str, features))
        missing = [name for name in wanted if name not in common]
        if missing:
            raise InputError(
                f"feature {missing[0]!r} is not in both source and grid: rename it or leave "
                f"it out; the source has {', '.join(has)}, and the grid "
                f"{', '.join(dict.fromkeys(there)) or 'nothing'}"
            )
    else:
        own = set(grid.dims) | set(grid.coords)
        alike = [n for n in common if n in own or like is not source]
        wanted = tuple(n for n in alike if n != target and n not in beside)
        if not wanted:
            raise InputError(
                "source and grid have no name in common, so nothing says where a row is: "
                f"rename one of them; the source has {', '.join(has)}, and the grid "
                f"{', '.join(dict.fromkeys(there)) or 'nothing'}"
            )
        _check_axes(table, wanted, grid, "source" if like is source else "grid")
    empty = [name for name in wanted if not grid[name].size]
    if empty:
        raise InputError(f"the grid has no value of {empty[0]!r}: give one or more")
    if target is None:
        target = _only_target(table, wanted, beside)
    used = {*wanted, target, *beside}
    open_to = table.defaults if features is None else ()
    left_out = tuple(name for name in open_to if name not in used and _kind(table, name))
    return Asked(source, target, wanted, grid, left_out)


def _only_target(table: Table, wanted: Names, beside: Collection[str]) -> str:
    """Return the only column that is no feature, nor ``beside`` these; InputError for others."""
    rest = [name for name in table.columns if name not in wanted and name not in beside]
    if len(rest) != 1:
        may_be = [name for name in rest or table.columns if _kind(table, name) != TIMES]
        raise InputError(
            f"the source has {'no column' if not rest else 'several columns'} beside the "
            f"features {', '.join(wanted)}: give target= (--target), "
            f"{'one of' if len(may_be) != 1 else 'such as'} {', '.join(may_be or table.columns)}"
        )
    return rest[0]


def _kind(table: Table, name: str) -> str:
    """Return the kind of a column of a source, "" for what are neither numbers nor times."""
    try:
        return table.kinds((name,))[name]
    except InputError:
        return ""


def _check_axes(table: Table, wanted: Names, grid: xr.Dataset, what: str) -> None:
    """Raise InputError for an axis of the grid or of the source that is no feature of the map."""
    coordinates = {dim for name in wanted if name in grid.coords for dim in grid[name].dims}
    used = {dim for name in wanted for dim in grid[name].dims if grid.sizes[dim] > 1} - coordinates
    foreign = [str(dim) for dim in grid.dims if dim in used and dim in grid.coords]
    if foreign:
        kind = kind_of_name(foreign[0])
        alike = [name for name in table.columns if kind and kind_of_name(name) == kind]
        example = f", such as grid.rename({foreign[0]}={alike[0]!r})" if alike else ""
        raise InputError(
            f"the {what} has {' and '.join(foreign)}, for which the source has no column: it has "
            f"{', '.join(table.columns)}; rename one of the two{example}, or name the features "
            "(features=, --features)"
        )
    lost = [name for name in table.defaults if name not in wanted] if table.gridded else []
    if lost:
        raise InputError(
            f"the source has {' and '.join(lost)}, but the {what} does not, so all values "
            f"along {'it' if len(lost) == 1 else 'them'} would be at one place: give the "
            f"{what} {lost[0]}, too (--resolution or --extent {lost[0]}=...), select from the "
            "source, or name the features (features=, --features)"
        )


def _say_left_out(names: Names) -> None:
    """Say which columns of a source are no features as the grid does not have them."""
    several = len(names) > 1
    logger.warning(
        "%s of the source %s, as the grid does not have %s",
        ", ".join(names[:LISTED]) + (" and others" if len(names) > LISTED else ""),
        "are not features" if several else "is not a feature",
        "them" if several else "it",
    )


def _grid(like: Any, columns: Names) -> xr.Dataset:
    """Return the grid that a map of columns is on, from what is given for it."""
    if grids.is_xarray(like):
        return grids.as_dataset(like)
    if isinstance(like, Mapping):
        try:
            return xr.Dataset(coords=dict(like))
        except ValueError as error:
            raise InputError(
                f"like is not a grid ({error}): give an array for each feature"
            ) from None
    if isinstance(like, str):
        if not data.exists(like):
            raise InputError(f"like {like} does not exist: check the path")
        if not gridded.is_grid(like):
            raise InputError(
                f"like {like} is not a grid: give a netCDF file, a Zarr group or a GeoTIFF, or "
                "steps of its axes (--resolution lon=0.1,lat=0.1)"
            )
        with gridded.readable(like), gridded.open_grid(like, columns) as opened:
            return opened.load()
    raise InputError(
        f"like is {shown(like)}: give a Dataset, a DataArray, a mapping of features to arrays, or "
        "the path of a grid"
    )


def _said(asked: Asked, min_neighbours: int | None) -> tuple[Mapping[str, Any], int]:
    """Return the attributes of the target, and the number of its values.

    InputError without any, or for neighbours that text cannot be.
    """
    with sources.open_table(asked.source, (asked.target,), asked.features) as table:
        known = rows.known_in(table, (asked.target,), asked.source)
        texts = () if min_neighbours is None else tuple(table.levels(asked.features))
    if texts:
        raise InputError(
            f"min_neighbours goes with features that are numbers or times, and {texts[0]!r} is "
            "text: leave one of them out, or use max_std"
        )
    if not known:
        raise InputError(
            f"target {asked.target!r} has no value, so there is nothing to "
            "interpolate: give rows that have one"
        )
    return table.attributes.get(asked.target, {}), known


def _prepared(
    asked: Asked, mask: Any, background: Any, model: GaussianProcess, columns: Names = ()
) -> tuple[Asked, list[region.Region], xr.DataArray | None]:
    """Return what is asked with the source to fit, the regions, and the background at the cells."""
    barriers = getattr(model, "barriers", None)
    regions, added = list[region.Region](), None
    if not (mask is None and barriers is None and background is None):
        beside = (background,) if isinstance(background, str) else ()
        needed = dict.fromkeys((*asked.features, *beside, *columns))
        read = rows.by_name(asked.source, (*needed, asked.target))
        asked = asked._replace(source=read)
    if mask is not None:
        regions.append(region.of(mask, asked.grid, asked.features))
    if barriers is not None:
        regions.append(region.beside(barriers, asked.features, model.geographic))
    for own in regions:
        asked = asked._replace(source=own.rows(asked.source, asked.target))
    if background is not None:
        guess, added = backgrounds.of(background, asked.source, asked.grid, asked.features)
        rest = guess.subtracted(asked.source, asked.target, model.fill_values)
        asked = asked._replace(source=rest)
    return asked, regions, added


def _model(
    method: str | GaussianProcess, kernel: Any, known: int, settings: Mapping[str, Any]
) -> GaussianProcess:
    """Return the estimator to fit to so many values."""
    if not isinstance(method, str):
        return clone(method)
    name = method
    if method == "auto":
        name = "vecchia" if "barriers" in settings else method_for(known)
    given = {"progress": False, **settings} | ({} if kernel is None else {"kernel": kernel})
    return ESTIMATORS.find(name)(**given)


def method_for(known: int) -> str:
    """Return the method that "auto" takes for so many values."""
    return "exact" if known <= EXACT else "vecchia"


def _described(
    mean: xr.DataArray,
    std: xr.DataArray,
    asked: Asked,
    attributes: Mapping[str, Any],
    model: GaussianProcess,
    include_noise: bool,
) -> xr.Dataset:
    """Return the maps with what the source says of the target and the grid of its coordinates."""
    name = asked.target
    kept = {k: attributes[k] for k in ("units", "standard_name", "long_name") if k in attributes}
    of = "a new observation of " if include_noise else ""
    of_std = {"long_name": f"standard deviation of {of}{kept.get('long_name', name)}"}
    of_std |= {key: value for key, value in kept.items() if key == "units"}
    spread = "new values, noise included" if include_noise else "the field, without noise"
    mean.attrs = {**kept, "ancillary_variables": f"{name}_std"}
    std.attrs = of_std | {"comment": f"that of {spread}"}
    maps = xr.Dataset({name: mean, f"{name}_std": std})
    mapping = grids.reference_of(maps)[0]
    for field in (name, f"{name}_std") if mapping else ():
        maps[field].attrs["grid_mapping"] = mapping
    maps.attrs = {
        "Conventions": "CF-1.11",
        "source": f"daskgp {model!r}",
        "kernel": str(model.kernel_),
        "inputs": ", ".join(_inputs(model)),
        "rows": model.n_rows_,
    }
    return maps


def _inputs(model: GaussianProcess) -> list[str]:
    """Return what the lengthscales of a kernel are along, and their units as far as known."""
    own = model.solved_
    units = dict(zip(own.feature_names, own.feature_units, strict=False))
    place = [own.feature_names[j] for j in own.geographic or ()]
    units |= dict.fromkeys(place, KILOMETRES)
    units = {name: feature_units.of_differences(unit) for name, unit in units.items()}
    return [f"{n} ({units[n]})" if units.get(n) else n for n in own.feature_names]


def _of_tree(tree: xr.DataTree, given: dict[str, Any]) -> Any:
    """Return the maps of all nodes that have the target, each of a model of its own."""
    target, both = given["target"], given["return_model"]
    if target is None:
        raise InputError("source is a DataTree: give target= (--target), the name of what to map")
    nodes = {node.path: node.to_dataset() for node in tree.subtree if target in node.data_vars}
    if not nodes:
        raise InputError(f"no node of the DataTree has {target!r}: choose another target")
    found = {path: mapped(own, **given) for path, own in nodes.items()}
    if not both:
        return xr.DataTree.from_dict(found)
    maps = xr.DataTree.from_dict({path: one[0] for path, one in found.items()})
    return maps, {path: one[1] for path, one in found.items()}
