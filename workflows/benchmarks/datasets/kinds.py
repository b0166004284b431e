"""Observations of each kind: drawn from a field, and of stations in DASKGP_DATA."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from daskgp import likelihoods
from datasets.files import file_of

DENSITY, LENGTH, VARIANCE, MEAN, WAVES = 25.0, 1.0, 1.44, 0.3, 3_000
PARAMETERS = {"negative-binomial": 2.0, "gamma": 2.0}
REAL = {
    "wet": "bernoulli-logit",
    "hot": "poisson",
    "hot-overdispersed": "negative-binomial",
    "rain": "gamma",
}
"""Sets of stations, and the likelihood of each."""
DAYS, STEP, WARM, FIRST = 12, 30, 300, 2
"""Days of ``wet`` and ``rain`` and those between them, tenths of degrees of a hot day, and the
first year of ``hot``."""
KM, DAY, MISSING = 111.2, 1_000, -9999
EVERY = 3
"""Places of the Meuse, one in so many of which has lead."""


class Kind(NamedTuple):
    """Rows X (n, d), observations y (n,), their exposure, likelihood, and f if it is known."""

    X: np.ndarray
    y: np.ndarray
    likelihood: str
    exposure: np.ndarray | None = None
    f: np.ndarray | None = None


def drawn(name: str, n: int, rng: np.random.Generator) -> Kind:
    """Return observations of a field with 25 places per squared lengthscale."""
    truth = likelihood(name)
    X = rng.uniform(0.0, np.sqrt(n / DENSITY), (n, 2))
    f = MEAN + field(X / LENGTH, rng, VARIANCE)
    return Kind(X, np.asarray(truth.sample(f, rng), np.float64), name, None, f)


def likelihood(name: str) -> Any:
    """Return the likelihood that observations are drawn from."""
    logs = np.log([PARAMETERS[name]]) if name in PARAMETERS else None
    return likelihoods.by_name(name, logs)


def field(X: np.ndarray, rng: np.random.Generator, variance: float) -> np.ndarray:
    """Return a sum of random waves with the spectrum of a Matérn-3/2 kernel of lengthscale 1."""
    w = rng.standard_normal((WAVES, 2)) * np.sqrt(3.0 / rng.chisquare(3, (WAVES, 1)))
    phase, f = rng.uniform(0, 2 * np.pi, WAVES), np.zeros(len(X))
    for i in range(0, WAVES, 100):
        f += np.cos(X @ w[i : i + 100].T + phase[i : i + 100]).sum(axis=1)
    return np.sqrt(2 * variance / WAVES) * f


def temperatures() -> tuple[np.ndarray, np.ndarray]:
    """Return places (n, 3) of stations and the lowest temperatures (n, 2) of a day and the next."""
    with np.load(file_of("stations")) as found:
        both = [found["tmin_tenths_c"][:, day] for day in (DAY, DAY + 1)]
        places = _places(found)
    y = np.column_stack(both) / 10.0
    known = (np.column_stack(both) != MISSING).all(axis=1)
    return places[known], y[known]


def days(_: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return X, temperatures of two days with gaps, and those of the second at other stations."""
    X, y = temperatures()
    hidden = rng.permutation(len(X)) >= len(X) // 8
    gaps = y.copy()
    gaps[hidden, 1] = np.nan
    return X, gaps, X[hidden], y[hidden, 1]


def metals(_: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return places in metres, logarithms of zinc and lead with gaps, and lead elsewhere."""
    from skgstat.data import meuse

    (X, zinc), (X, lead) = (meuse(variable=name)["sample"] for name in ("zinc", "lead"))
    X, y = np.asarray(X, float), np.log10(np.column_stack([zinc, lead]).astype(float))
    gaps, hidden = y.copy(), np.arange(len(y)) % EVERY > 0
    gaps[hidden, 1] = np.nan
    return X, gaps, X[hidden], y[hidden, 1]


def _places(found: Any) -> np.ndarray:
    lat, lon, height = (found[key] for key in ("lat", "lon", "elev_m"))
    east = KM * (lon - lon.mean()) * np.cos(np.deg2rad(lat.mean()))
    return np.column_stack([east, KM * lat, height])


def of_stations(name: str, rng: np.random.Generator) -> Kind:
    """Return days of stations, wet or with how much rain, or hot days of July per year.

    Columns are east and north in km, height in m, and day or year.
    """
    with np.load(file_of("stations")) as found:
        places = _places(found)
        if name in ("wet", "rain"):
            values = found["prcp_tenths_mm"][:, ::STEP][:, :DAYS].astype(float)
            times, exposure = STEP * np.arange(DAYS), None
            known = values >= 0 if name == "wet" else values > 0
            y = (values > 0).astype(float) if name == "wet" else values / 10.0
        else:
            dates = np.datetime64(str(found["day0"])) + np.arange(found["tmax_tenths_c"].shape[1])
            july = dates.astype("datetime64[M]").astype(int) % 12 == 6
            year = dates.astype("datetime64[Y]").astype(int)
            times = np.unique(year)[FIRST:]
            highs = [found["tmax_tenths_c"][:, july & (year == one)] for one in times]
            exposure = np.column_stack([(one != MISSING).sum(axis=1) for one in highs]).astype(
                float
            )
            y = np.column_stack([(one >= WARM).sum(axis=1) for one in highs]).astype(float)
            known = exposure > 0
    rows = np.argwhere(known)
    rows = rng.permutation(rows)
    X = np.column_stack([places[rows[:, 0]], times[rows[:, 1]]]).astype(float)
    at = rows[:, 0], rows[:, 1]
    return Kind(X, y[at], REAL[name], None if exposure is None else exposure[at])
