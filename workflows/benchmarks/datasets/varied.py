"""Ten tables, ten fields and five series of all kinds, each with what its predictions are for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets.cases import table
from datasets.files import air_grid
from datasets.functions import park, smooth
from datasets.kinds import temperatures
from datasets.network import stations
from datasets.split import Split

MOST_PLACES = 2_000
TABLES = {
    "bike": 8_000,
    "elevators": 8_000,
    "keggdirected": 8_000,
    "kin40k": 10_000,
    "pol": 8_000,
    "protein": 10_000,
    "heteroscedastic": 8_000,
    "friedman": 1_000,
    "outliers": 4_000,
    "emulator": 300,
}
FIELDS = {
    "satellite": 16_000,
    "air": 16_000,
    "stations": 12_000,
    "terrain": 16_000,
    "exponential": 16_000,
    "survey": 16_000,
    "lines": 8_000,
    "cluster": 12_000,
    "changing": 10_000,
    "day": 600,
}
SERIES = {"bursts": 6_000, "seasons": 3_200, "hours": 2_500, "cycles": 1_500, "tide": 3_000}
VARIED = {**TABLES, **FIELDS, **SERIES}
"""Most rows of each set."""
GAPS = {"satellite", "air", "stations", "exponential", "survey", "lines", "seasons", "hours"}
"""Sets whose places lie in regions, or spans of time, without rows."""
FORECAST = {"cycles"}
SOURCES = {"day": "stations", "hours": "air"}
"""Sets that are of the file of another."""


class Varied(NamedTuple):
    """Rows and places of a set, and what predictions are for, in the words of AutoGP."""

    split: Split
    task: str

    @property
    def asked(self) -> dict[str, object]:
        """Settings of AutoGP."""
        return {"task": self.task} | ({"time": 0} if self.task == "forecast" else {})


def varied(name: str, rows: int | None, folder: Path) -> Varied:
    """Return a set by its name, of at most so many rows."""
    own = MADE[name]() if name in MADE else table(name, None, folder)
    task = "gaps" if name in GAPS else "forecast" if name in FORECAST else "interpolate"
    few = own.drawn(min(rows or VARIED[name], VARIED[name]))
    order = np.random.default_rng(0).permutation(len(own.y_test))[:MOST_PLACES]
    return Varied(few._replace(X_test=few.X_test[order], y_test=few.y_test[order]), task)


def outliers() -> Split:
    """Return a function of four features; one value in twelve is spoilt, none to predict is."""
    X, y = smooth(6_000, 4)
    rng = np.random.default_rng(1)
    wild = rng.uniform(size=len(y)) < 1 / 12
    wild[4_000:] = False
    y = y + np.where(wild, 5 * rng.standard_t(2, len(y)), 0.0)
    return Split(X[:4_000], y[:4_000], X[4_000:], y[4_000:])


def emulator() -> Split:
    """Return values of the function of Park (1991), without noise."""
    X = np.random.default_rng(0).uniform(0.05, 1, (2_300, 4))
    y = park(X)
    return Split(X[:300], y[:300], X[300:], y[300:])


def day() -> Split:
    """Return the lowest temperatures of a day by east, north and height."""
    X, y = temperatures()
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:600], order[600:]
    return Split(X[train], y[train, 0], X[test], y[test, 0])


def seasons() -> Split:
    """Return ten years of daily maxima of one station; months are left out."""
    network = stations(3_653, 3)
    values = network.values[int(np.argmax(np.isfinite(network.values).sum(axis=1)))]
    t, known = np.arange(len(values), dtype=float), np.isfinite(values)
    out = np.isin(t // 30, np.random.default_rng(0).permutation(122)[:18])
    train, test = known & ~out, known & out
    return Split(t[train, None], values[train], t[test, None], values[test])


def hours() -> Split:
    """Return two years of air temperatures at one place, every six hours; days are left out."""
    grid, _ = air_grid(2_920)
    y = grid.values[:, 12, 30]
    t = 6.0 * np.arange(len(y))
    out = np.isin(t // 96, np.random.default_rng(1).permutation(183)[:26])
    return Split(t[~out, None], y[~out], t[out, None], y[out])


def cycles() -> Split:
    """Return a trend, a year that changes slowly and a week, by the day; the end is to predict."""
    rng, t = np.random.default_rng(2), np.arange(2_000, dtype=float)
    year = (1 + 0.2 * np.sin(t / 700)) * np.sin(2 * np.pi * t / 365.25)
    week = 0.4 * np.cos(2 * np.pi * t / 7) + 0.2 * np.sin(4 * np.pi * t / 7)
    y = 0.002 * t + year + week + 0.15 * rng.standard_normal(len(t))
    return Split(t[:1_500, None], y[:1_500], t[1_500:, None], y[1_500:])


def tide() -> Split:
    """Return a tide of two periods, weather, and a value in 30 spoilt, at uneven hours."""
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0, 90 * 24, 4_500))
    weather = np.interp(t, np.arange(0, 2_400, 12), 0.3 * np.cumsum(rng.standard_normal(200)) / 4)
    waves = np.cos(2 * np.pi * t / 12.42) + 0.35 * np.cos(2 * np.pi * t / 12 + 1)
    f = waves + 0.2 * np.sin(2 * np.pi * t / 25.82) + weather
    y = f + 0.08 * rng.standard_normal(len(t))
    order = rng.permutation(len(t))
    train, test = np.sort(order[:3_000]), np.sort(order[3_000:])
    spoilt = y[train] + np.where(rng.uniform(size=3_000) < 1 / 30, rng.normal(0, 3, 3_000), 0)
    return Split(t[train, None], spoilt, t[test, None], y[test])


MADE: dict[str, Callable[[], Split]] = {
    "outliers": outliers,
    "emulator": emulator,
    "day": day,
    "seasons": seasons,
    "hours": hours,
    "cycles": cycles,
    "tide": tide,
}
