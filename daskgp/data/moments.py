"""Names and attributes of predicted means and spreads, as xarray and CF readers want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LONG = {
    "mean": "mean",
    "std": "standard deviation",
    "variance": "variance",
    "quantiles": "quantiles",
    "samples": "samples",
    "exceedance": "probability of exceeding a threshold",
}


def name_of(what: str, target: str) -> str:
    """Return the name of an array of ``what`` ("mean", "std", "variance") of one target."""
    return f"{target}_{what}"


def describe(
    what: str,
    targets: Sequence[str],
    units: Sequence[str],
    observed: bool,
    threshold: float | tuple[float, ...] | None = None,
) -> dict[str, Any]:
    """Return the attributes of an array; ``units`` are empty where they are not known.

    ``observed`` says that the spread is that of a new observation rather than of f.  ``threshold``
    is that of probabilities, or that of each target.
    """
    spread = "of a new observation of" if observed and what != "mean" else "of"
    said: dict[str, Any] = {"long_name": f"posterior {LONG[what]} {spread} {', '.join(targets)}"}
    if what == "exceedance":
        limit = [*threshold] if isinstance(threshold, tuple) else threshold
        return {**said, "threshold": limit, "units": "1"}
    if len(set(units)) == 1 and units[0]:
        said["units"] = f"({units[0]})2" if what == "variance" else units[0]
    return said
