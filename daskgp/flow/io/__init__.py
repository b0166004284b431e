"""The only door to zarr and xarray: datasets, labelled grids, model and prediction stores."""

from daskgp.flow.io import moments
from daskgp.flow.io.datasets import (
    Rows,
    column_names,
    dataset_arrays,
    is_zarr,
    open_dataset,
    open_inputs,
    rows_of,
)
from daskgp.flow.io.groups import checksum, exists, first_line, remove, reopened, vacant
from daskgp.flow.io.lazy import behind
from daskgp.flow.io.marks import UNKNOWN as UNKNOWN_MARK
from daskgp.flow.io.reading import all_of
from daskgp.flow.io.remote import address, local_folder
from daskgp.flow.io.writers import DEFAULT_BLOCK_ROWS, DatasetWriter, dataset_writer

__all__ = [
    "DEFAULT_BLOCK_ROWS",
    "UNKNOWN_MARK",
    "DatasetWriter",
    "Rows",
    "address",
    "all_of",
    "behind",
    "checksum",
    "column_names",
    "dataset_arrays",
    "dataset_writer",
    "exists",
    "first_line",
    "is_zarr",
    "local_folder",
    "moments",
    "open_dataset",
    "open_inputs",
    "remove",
    "reopened",
    "rows_of",
    "vacant",
]
