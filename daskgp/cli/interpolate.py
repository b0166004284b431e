"""The command ``daskgp interpolate``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import click

from daskgp.cli.methods import MODELS
from daskgp.cli.options import (
    SETTINGS,
    NewGrid,
    column_options,
    file_encoding_options,
    new_grid_options,
    settings_in,
    store_options,
)
from daskgp.cli.run import command, result, since
from daskgp.errors import SettingError


@command()
@click.argument("source")
@click.argument("output", metavar="OUTPUT")
@column_options(
    "Column to map.  [default: the only one that is not a feature]",
    "Columns that it depends on.  [default: all that both SOURCE and grid have]",
    mask=False,
)
@new_grid_options
@click.option(
    "--model",
    metavar="NAME",
    help="Method: auto, which is exact for up to 2,000 values and vecchia for more, "
    f"{', '.join(MODELS[:-1])} or {MODELS[-1]}.  [default: auto]",
)
@click.option(
    "--kernel", metavar="KERNEL", help="Kernel, such as matern32.  [default: that of the method]"
)
@click.option(
    "--mean",
    metavar="MEAN",
    help="Mean function: zero, constant, linear, ols, or columns of a trend: a,b.  "
    "[default: constant]",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting of --model, such as n_inducing=512. Repeatable.",
)
@click.option(
    "--background",
    metavar="NAME",
    help="First guess: a variable of SOURCE and grid, or a grid of one variable in a file.",
)
@click.option(
    "--mask",
    metavar="NAME",
    help="Region of the map: a GeoJSON file of polygons, or a boolean variable of the grid.",
)
@click.option(
    "--barriers",
    metavar="FILE",
    help="GeoJSON file of polygons, such as land, that rows do not see one another across.",
)
@click.option("--max-std", type=float, metavar="S", help="Leave out cells that are less certain.")
@click.option(
    "--min-neighbours",
    type=click.IntRange(min=1),
    metavar="N",
    help="Leave out cells with fewer rows within the reach of the field.",
)
@click.option(
    "--include-noise",
    is_flag=True,
    help="Give standard deviations of new values, not of the field.",
)
@file_encoding_options
@store_options("source", "like", destination="output")
def interpolate(
    source: str,
    output: str,
    columns: dict[str, Any],
    grid: NewGrid,
    model: str | None,
    kernel: str | None,
    mean: str | None,
    assignments: tuple[str, ...],
    background: str | None,
    mask: str | None,
    barriers: str | None,
    max_std: float | None,
    min_neighbours: int | None,
    include_noise: bool,
    encoding: Mapping[str, Any],
) -> None:
    """Map a target of SOURCE on a grid, into the new file or Zarr group OUTPUT.

    SOURCE is any source of `daskgp convert`, such as a csv or a grid with gaps.  The grid is that
    of --like, or has the steps of --resolution, or is that of SOURCE.  OUTPUT, here or at a URL, is
    NAME.nc, NAME.zarr or, as a GeoTIFF, NAME.tif.  It gets mean and standard deviation of all
    cells, also of those that have a value.  In the line of JSON, `cells` is the number of cells and
    `known` of those that got a value: others are masked, too uncertain or lack a feature.
    """
    from daskgp.data import encoding as encodings
    from daskgp.fit import work
    from daskgp.maps.covering import grid_over
    from daskgp.maps.kriging import CELL, asked_for, check_barriers, mapped
    from daskgp.output import labelled

    began = time.perf_counter()
    labelled.refuse_taken(output, elsewhere=True)
    stored_as = encodings.checked(encoding)
    labelled.check_encoding(output, stored_as)
    settings = settings_in(columns)
    if barriers is not None:
        check_barriers(model or "auto")
        settings["barriers"] = barriers
    names, target = columns["features"], _one("target", columns["target"])
    beside = {name: own for name, own in columns.items() if own is not None} | {
        name: _one(name, columns[name]) for name in ("y_std", "y_variance") if columns[name]
    }
    for name in ("target", "features", *SETTINGS):
        beside.pop(name, None)
    how = _method(model, kernel, mean, assignments, settings)
    like: Any = grid.like
    if grid.resolution is not None or grid.extent is not None:
        like = grid_over(source, grid.steps, grid.ends, grid.like)
        cells = math.prod(like.sizes.values())
        work.refuse_large_map(cells, CELL)
        if not encoding:
            work.refuse_full_disk(cells * CELL, output, "the map")
    if labelled.is_geotiff(output):
        asked = asked_for(source, like, target, names, background, beside)
        labelled.check_geotiff(asked.coords, source if like is None else "the grid", output, 2)
    elif stored_as.chunks:
        grid_of = asked_for(source, like, target, names, background, beside).grid
        stored_as.together(tuple(map(str, grid_of.dims)), tuple(grid_of.sizes.values()))
    maps, fitted = mapped(
        source,
        like,
        target=target,
        features=names,
        background=background,
        mask=mask,
        max_std=max_std,
        min_neighbours=min_neighbours,
        include_noise=include_noise,
        return_model=True,
        columns=beside,
        **how,
    )
    labelled.write(maps, output, stored_as)
    name = next(iter(maps.data_vars))
    result(
        map=output,
        target=name,
        features=list(fitted.solved_.feature_names),
        method=type(fitted).__name__,
        rows=int(fitted.n_rows_),
        cells=int(maps[name].size),
        known=int(maps[name].notnull().sum()),
        seconds=since(began),
    )


def _one(name: str, names: list[str] | None) -> str | None:
    """Return the column that an option names, None without; SettingError for several."""
    if names is not None and len(names) > 1:
        raise SettingError(
            f"--{name.replace('_', '-')} is {','.join(names)}: a map has one target: give one"
        )
    return None if names is None else names[0]


def _method(
    model: str | None,
    kernel: str | None,
    mean: str | None,
    assignments: tuple[str, ...],
    more: dict[str, Any],
) -> dict[str, Any]:
    """Return the method and the settings that options describe."""
    from daskgp.cli.settings import build_estimator

    if model is None or model == "auto":
        if assignments:
            raise SettingError("--set gives settings of a method: name it with --model")
        if mean is not None:  # read alike for all methods
            more = more | {"mean": build_estimator("exact", mean=mean).mean}
        return more | {"kernel": kernel}
    text = () if kernel is None else (f"kernel={kernel}",)
    return {"method": build_estimator(model, (*assignments, *text), more=more, mean=mean)}
