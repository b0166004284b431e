"""The command ``daskgp map``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from daskgp.cli.options import names_or_none, store_options
from daskgp.cli.run import command, result, since
from daskgp.errors import InputError, SettingError

FIGURES = (".png", ".pdf", ".svg", ".jpg")
PAGES = (".html", ".htm")


@command()
@click.argument("store")
@click.argument("output", metavar="OUTPUT")
@click.option(
    "--at",
    "places",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a dimension that the map does not show, such as time=2026-03-05; the "
    "nearest one is taken. Repeatable.",
)
@click.option("--title", metavar="TEXT", help="Title of the figure.")
@click.option(
    "--bands",
    metavar="A,B",
    help="Dimensions, such as time, of which each value becomes a band of the GeoTIFF.",
)
@click.option(
    "--crs",
    metavar="CRS",
    help="Coordinate reference system of the GeoTIFF, such as EPSG:32632.  [default: that of "
    "STORE]",
)
@click.option(
    "--coast",
    metavar="FILE",
    help="GeoJSON file of coastlines, in the units of the axes, or none for a map without.  "
    "[default: those of the package, on maps in longitude and latitude]",
)
@store_options("store")
def map(
    store: str,
    output: str,
    places: tuple[str, ...],
    title: str | None,
    bands: str | None,
    crs: str | None,
    coast: str | None,
) -> None:
    """Draw the map in STORE into OUTPUT, or write it in another format.

    STORE is a prediction store, or a file or group that `daskgp interpolate` wrote.  OUTPUT is a
    figure, NAME.png, NAME.pdf or NAME.svg; a page that zooms, NAME.html, which needs no network;
    or a new GeoTIFF or netCDF file, NAME.tif or NAME.nc.
    """
    from daskgp.output import labelled

    if not labelled.is_geotiff(output) and (bands or crs):
        raise SettingError(
            f"--bands and --crs are for GeoTIFFs, which {output} is not: leave them out"
        )
    began, ending = time.perf_counter(), f".{output.lower().rpartition('.')[2]}"
    if ending in FIGURES:
        from daskgp.plot.canvas import check_matplotlib

        check_matplotlib()
    elif ending in PAGES:
        from daskgp.plot.interactive import check_libraries

        check_libraries()
    elif ending in labelled.ENDINGS:
        for option, value in (("--title", title), ("--coast", coast)):
            if value is not None:
                raise SettingError(f"{option} is for figures and pages: leave it out for {output}")
        labelled.refuse_taken(output)
    else:
        known = ", ".join((*FIGURES, PAGES[0], *labelled.ENDINGS))
        raise SettingError(f"cannot tell the format of {output}: end its name in one of {known}")
    with labelled.opened(store) as (maps, what):
        fields, at = _at(maps, places, what)
        if ending in FIGURES + PAGES:
            from daskgp import plot

            _refuse_more(fields, what)
            draw = plot.maps if ending in FIGURES else plot.explore
            lines = coast != "none" if coast in (None, "none") else coast
            said = title or ", ".join(f"{name} {value}" for name, value in at.items())
            draw(fields, title=said, coast=lines, path=output)
        elif labelled.is_geotiff(output):
            labelled.to_geotiff(fields, output, bands=names_or_none(bands) or (), crs=crs)
        else:
            labelled.write(fields, output)
        names = [str(name) for name in fields.data_vars]
        result(map=output, variables=names, **({"at": at} if at else {}), seconds=since(began))


def _at(maps: Any, places: Sequence[str], what: str) -> tuple[Any, dict[str, str]]:
    """Return maps at values of dimensions, and the values; raise an error where there are none."""
    chosen = {}
    for text in places:
        name, equals, value = text.partition("=")
        if not equals or name not in maps.dims:
            dims = ", ".join(str(dim) for dim in maps.dims)
            raise SettingError(f"--at {text}: write NAME=VALUE, with a dimension of {what}, {dims}")
        if name not in maps.coords:
            raise InputError(f"{what} has no coordinate {name} that --at {text} could choose from")
        axis = maps[name]
        try:
            wanted = value if axis.dtype.kind in "MUOT" else axis.dtype.type(value)
            near: dict[str, Any] = {} if axis.dtype.kind in "UOT" else {"method": "nearest"}
            if near and axis.size > 1:
                near["tolerance"] = abs(axis.values[1:] - axis.values[:-1]).max()
            maps = maps.sel({name: wanted}, **near)
        except (KeyError, ValueError, TypeError) as error:
            first, last = (_text(axis.values[i]) for i in (0, -1))
            raise InputError(f"--at {text}: {what} has {name} from {first} to {last}") from error
        chosen[name] = _text(maps[name].values[()])
    return maps, chosen


def _refuse_more(fields: Any, what: str) -> None:
    """Raise InputError for fields of more dimensions than a figure has."""
    from daskgp.plot.places import OF_PREDICTIONS, in_plane

    for field in fields.data_vars.values():
        dims = [str(d) for d in field.dims if field.sizes[d] > 1 and d not in OF_PREDICTIONS]
        if len(dims) > 2:
            others = [dim for dim in dims if not in_plane(field[dim])]
            others = others if len(others) == len(dims) - 2 else dims[:-2]
            example = " ".join(f"--at {dim}={_text(field[dim].values[0])}" for dim in others)
            raise InputError(
                f"{what} has the dimensions {', '.join(dims)}, but a figure shows two: choose "
                f"a value of each of the others, such as {example}"
            )


def _text(value: Any) -> str:
    """Return a value of a coordinate as a user writes it."""
    import numpy as np

    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    return f"{value:g}" if isinstance(value, np.number) else str(value)
