"""Rows wherever they are stored, and the only door to zarr, xarray and pandas."""

from daskgp.data import moments
from daskgp.data.reading import all_of, behind
from daskgp.data.reading import from_zarr as lazily
from daskgp.data.rows import (
    CONVERTIBLE,
    PASSING,
    Rows,
    beside_in_store,
    column_names,
    dataset_arrays,
    is_dataset,
    is_zarr,
    levels_of,
    named_beside,
    open_dataset,
    open_inputs,
    reference_of,
    refuse_lost,
    rows_of,
    units_of,
    warn_of_left_behind,
    warn_of_lost,
    warn_of_packed,
)
from daskgp.data.stores.chunk_marks import UNKNOWN as UNKNOWN_MARK
from daskgp.data.stores.groups import checksum, exists, first_line, remove, reopened, vacant
from daskgp.data.stores.remote import address, local_folder
from daskgp.data.writers import DEFAULT_BLOCK_ROWS, DatasetWriter, dataset_writer

__all__ = [
    "CONVERTIBLE",
    "DEFAULT_BLOCK_ROWS",
    "PASSING",
    "UNKNOWN_MARK",
    "DatasetWriter",
    "Rows",
    "address",
    "all_of",
    "behind",
    "beside_in_store",
    "checksum",
    "column_names",
    "dataset_arrays",
    "dataset_writer",
    "exists",
    "first_line",
    "is_dataset",
    "is_zarr",
    "lazily",
    "levels_of",
    "local_folder",
    "moments",
    "named_beside",
    "open_dataset",
    "open_inputs",
    "reference_of",
    "refuse_lost",
    "remove",
    "reopened",
    "rows_of",
    "units_of",
    "vacant",
    "warn_of_left_behind",
    "warn_of_lost",
    "warn_of_packed",
]
