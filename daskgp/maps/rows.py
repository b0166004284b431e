"""What sources hold their rows by name, so that some can be left out or changed."""

from __future__ import annotations

from typing import Any

import xarray as xr


def in_memory(source: Any) -> bool:
    """Return whether a source is a Dataset, or a data frame of pandas."""
    return isinstance(source, xr.Dataset) or (hasattr(source, "iloc") and hasattr(source, "query"))
