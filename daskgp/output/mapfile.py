"""Predictions of a grid in a file, a GeoTIFF or netCDF, by way of a store beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from daskgp.data import gridded
from daskgp.data.encoding import AS_GIVEN
from daskgp.data.stores import groups
from daskgp.errors import InputError, SettingError
from daskgp.output import labelled
from daskgp.output.job import Job

NETCDF = ".nc"


def is_file(output: Any) -> bool:
    """Return whether a map goes into a file; a store of an earlier version may have its name."""
    if not isinstance(output, str | os.PathLike):
        return False
    named = str(output).lower().endswith(NETCDF) and not os.path.isdir(output)
    return labelled.is_geotiff(output) or named


@contextmanager
def stored(job: Job, url: str) -> Iterator[Job]:
    """Yield the prediction of a grid into a file as one into a prediction store at a URL.

    On leaving, the output is written from the store, and appears once it is whole.

    Raises
    ------
    InputError
        If the source is no grid, or none that the file can hold.
    SettingError, StoreError
        If there is something to resume or verify, or the output is taken, not on this machine, or
        larger than its disk.
    """
    output = str(job.output).removeprefix("file://")
    labelled.refuse_taken(output)
    if job.resume or job.verify:
        raise SettingError(
            f"{output} is written whole: predict into a store to resume or verify, such as "
            f"map.zarr, and then daskgp map map.zarr {output}"
        )
    tiff = labelled.is_geotiff(output)
    if tiff and job.encoding.chunks:
        raise SettingError(
            f"{output} is written in tiles of its own: give only dtype of the encoding"
        )
    if not gridded.is_grid(job.source):
        raise InputError(
            f"{output} would hold a map and {job.source} holds rows: give a grid, --resolution or "
            "--like, or name a store for the predictions, such as predictions.zarr"
        )
    labelled.check_encoding(output, job.encoding)
    if tiff:
        with job.grid() as grid:
            labelled.check_geotiff(grid.grid.coords, grid.url, output, _bands(job))
    inner = job._replace(output=f"{url}-predictions", encoding=job.encoding if tiff else AS_GIVEN)
    try:
        yield inner
        if tiff:
            labelled.to_geotiff(inner.output, output)
        else:
            with labelled.opened(inner.output) as (maps, _):
                labelled.write(maps.chunk(), output, job.encoding)
    except Exception as error:
        error.__notes__ = []  # on how to resume, which a file does not
        raise
    finally:
        groups.remove(inner.output)


def _bands(job: Job) -> int:
    """Return the number of bands of a prediction."""
    wanted, samples = job.outputs, (job.outputs.samples or (0, 0))[0]
    each = {"quantiles": len(wanted.quantiles), "samples": samples}
    return job.posterior.n_targets * sum(each.get(name, 1) for name in wanted.names)
