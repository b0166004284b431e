"""Predictions of a grid in a GeoTIFF, by way of a store that is there for as long as it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from daskgp.data import gridded
from daskgp.data.stores import groups
from daskgp.errors import InputError, SettingError
from daskgp.output import labelled
from daskgp.output.job import Job


@contextmanager
def stored(job: Job, url: str) -> Iterator[Job]:
    """Yield the prediction of a grid into a GeoTIFF as one into a prediction store beside a URL.

    On leaving, the output is written from the store, and appears once it is whole.

    Raises
    ------
    InputError
        If the source is no grid, or none that a GeoTIFF can hold.
    SettingError, StoreError
        If there is something to resume or verify, or the output is taken, not on this machine, or
        larger than its disk.
    """
    output = str(job.output).removeprefix("file://")
    labelled.refuse_taken(output)
    if job.resume or job.verify:
        raise SettingError(
            f"{output} is written whole: predict into a store to resume or verify, such as "
            f"map.zarr, and then daskgp map map.zarr {output}, or daskgp.to_geotiff"
        )
    if job.encoding.chunks:
        raise SettingError(
            f"{output} is written in tiles of its own: of an encoding it takes the dtype alone"
        )
    if not gridded.is_grid(job.source):
        raise InputError(
            f"{output} would hold a map and {job.source} holds rows: give a grid, --resolution or "
            "--like, or name a store for the predictions, such as predictions.zarr"
        )
    with job.grid() as grid:
        labelled.check_geotiff(grid.grid.coords, grid.url, output, _bands(job))
    inner = job._replace(output=f"{url}-predictions")
    try:
        yield inner
        labelled.to_geotiff(inner.output, output)
    except Exception as error:
        error.__notes__ = []  # on how to resume, which a GeoTIFF does not
        raise
    finally:
        groups.remove(inner.output)


def _bands(job: Job) -> int:
    """Return the number of bands of a prediction."""
    wanted, samples = job.outputs, (job.outputs.samples or (0, 0))[0]
    each = {"quantiles": len(wanted.quantiles), "samples": samples}
    return job.posterior.n_targets * sum(each.get(name, 1) for name in wanted.names)
