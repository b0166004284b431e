"""Fields by name, drawn once and kept; all sets by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets.changing import at_random, changing, flown
from datasets.files import air, satellite, srtm, terrain, uci
from datasets.functions import friedman, heteroscedastic
from datasets.network import station_year
from datasets.processes import (
    Draw,
    Truth,
    bursts,
    cluster,
    clusters,
    grid,
    lines,
    log_normal,
    scattered,
    square,
    survey,
    uniform,
)
from datasets.split import Split


def table(name: str, rows: int | None = None, folder: Path | None = None) -> Split:
    """Return a set by its name, thinned to so many rows; fields are drawn into a folder."""
    known: dict[str, Callable[[], Split]] = {
        "satellite": satellite,
        "air": air,
        "stations": station_year,
        "terrain": terrain,
        "srtm": srtm,
        "friedman": friedman,
        "heteroscedastic": heteroscedastic,
    }
    if name in CASES and folder is not None:
        return stored(folder, name, tiny=rows is not None).thinned(rows)
    return (known[name]() if name in known else uci(name)).thinned(rows)


class Case(NamedTuple):
    """Way to draw a field, the process, a number of seeds, and settings that the question fixes."""

    draw: Draw
    truth: Truth
    seeds: int = 1
    settings: dict[str, object] = {}  # noqa: RUF012  never changed


_OF_SATELLITE = {"lengthscale": 4 / 3, "variance": 16.4, "noise": 0.05}
_CELL = 4.6 / 500
_ROUGH, _SMOOTH = (Truth(family, **_OF_SATELLITE) for family in ("matern12", "matern32"))
_CHANGING = Truth("matern32", 0.02 * 10**0.5, 3.0 / 10**0.5, 0.05)
_SURVEY = Truth("matern12", 0.16, 60.0, 2.5)
CASES = {
    "exponential": Case(grid((300, 500), _CELL), _ROUGH, 3),
    "matern32": Case(grid((300, 500), _CELL), _SMOOTH, 3),
    "long-exponential": Case(grid((173, 867), _CELL), _ROUGH, 3),
    "long-matern32": Case(grid((173, 867), _CELL), _SMOOTH, 3),
    "survey": Case(survey, _SURVEY),
    "square": Case(square, Truth("matern32", 0.11, 1.5, 0.05)),
    "lines-nugget": Case(scattered(8_000, lines, True), Truth("matern32", 0.5, 1.0, 0.05)),
    "lines": Case(scattered(8_000, lines, True), Truth("matern32", 0.5, 1.0, 0.0)),
    "log-normal": Case(scattered(8_000, log_normal), Truth("matern32", 0.5, 1.0, 0.01)),
    "cluster": Case(scattered(12_000, cluster), Truth("matern32", 0.05, 1.0, 0.01)),
    "bursts": Case(scattered(6_000, bursts), Truth("matern32", 0.005, 1.0, 0.01)),
    "two-clusters": Case(scattered(8_000, clusters), Truth("matern32", 0.3, 1.0, 0.01)),
    "changing": Case(changing(10_000, at_random), _CHANGING, 3),
    "changing-lines": Case(changing(10_000, flown), _CHANGING, 3),
    "uniform-order-1": Case(
        scattered(6_400, uniform), Truth("matern32", 0.2, 1.0, 0.01), 1, {"markov_order": 1}
    ),
}


def stored(folder: Path, name: str, seed: int = 0, tiny: bool = False) -> Split:
    """Return a field, drawn once and kept in a folder."""
    path = folder / f"{name}-{seed}{'-tiny' if tiny else ''}.npz"
    if not path.exists():
        case = CASES[name]
        folder.mkdir(parents=True, exist_ok=True)
        drawn = case.draw(np.random.default_rng(seed), case.truth, tiny)
        np.savez(path, **drawn._asdict())
    with np.load(path) as found:
        return Split(**found)
