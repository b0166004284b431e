"""Stations and their daily maxima: those of GHCN-Daily, or generated ones."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.signal
import scipy.special

from datasets.files import drawn_from, file_of
from datasets.split import Split


def station_year() -> Split:
    """Return a year of daily maxima of the U.S. stations, months of a station left out."""
    network = stations(365, 300)
    out, known = network.left_out(), np.isfinite(network.values)
    lon, lat, elevation, day = (
        np.broadcast_to(values if along == "day" else values[:, None], known.shape)
        for along, values in (network.features()[name] for name in PLACE)
    )
    X = np.stack([lon, lat, elevation, day], axis=-1)
    return drawn_from(X[known], network.values[known], out[known])


YEAR, HELD_OUT, MISSING = 365.25, 0.1, 0.18
PLACE = ("lon", "lat", "elevation", "day")


class Network(NamedTuple):
    """Stations (S,) and their daily maxima in degrees (S, D), NaN where there is none."""

    lon: np.ndarray
    lat: np.ndarray
    elevation: np.ndarray
    first: np.datetime64
    values: np.ndarray

    def features(self) -> dict[str, tuple[str, np.ndarray]]:
        """Return the columns of X, each along stations or days."""
        day = np.arange(self.values.shape[1], dtype=np.float64)
        waves = {
            f"{wave.__name__}{k}": ("day", wave(2 * np.pi * k * day / YEAR))
            for k in (1, 2)
            for wave in (np.sin, np.cos)
        }
        lon = self.lon * np.cos(np.radians(38))
        places = (("station", values) for values in (lon, self.lat, self.elevation))
        return dict(zip(PLACE, (*places, ("day", day)), strict=True)) | waves

    def left_out(self) -> np.ndarray:
        """Return where (S, D) a month of a station is left to be predicted."""
        days = self.first + np.arange(self.values.shape[1])
        _, month = np.unique(days.astype("datetime64[M]"), return_inverse=True)
        drawn = np.random.default_rng(0).random((len(self.lon), month.max() + 1)) < HELD_OUT
        return drawn[:, month]

    def drawn(self, rows: int) -> Split:
        """Return so many values at random and a tenth as many others, targets standardised."""
        station, day = np.nonzero(np.isfinite(self.values))
        rows = min(rows, int(len(day) / 1.1))
        few = np.random.default_rng(0).permutation(len(day))[: int(1.1 * rows)]
        at = {"station": station[few], "day": day[few]}
        X = np.column_stack([values[at[along]] for along, values in self.features().values()])
        y = self.values[at["station"], at["day"]]
        y = (y - y[:rows].mean()) / y[:rows].std()
        return Split(X[:rows], y[:rows], X[rows:], y[rows:])


def stations(days: int, generated: int) -> Network:
    """Return the first days of the U.S. stations of GHCN-Daily, or of so many generated ones.

    spatial/ghcn_hcn_daily_2008_2017.npz has lat, lon, elev_m, day0 and tmax_tenths_c (stations,
    days), -9999 for a missing value (Menne et al. 2012); without DASKGP_DATA all are generated.
    """
    if not os.environ.get("DASKGP_DATA"):
        return weather(generated, days)
    with np.load(file_of("ghcn_hcn_daily_2008_2017")) as found:
        tenths = found["tmax_tenths_c"][:, :days]
        values = np.where(tenths == -9999, np.nan, tenths / 10)
        first = np.datetime64(str(found["day0"]), "D")
        return Network(found["lon"], found["lat"], found["elev_m"], first, values)


def weather(number: int, days: int) -> Network:
    """Draw seasons, height and weather that lasts for days, over places at random."""
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(-124, -67, number), rng.uniform(25, 49, number)
    elevation, day = 2500 * rng.beta(1, 4, number), np.arange(days)
    climate = 30 - 0.6 * (lat - 25) - 0.006 * elevation
    season = (6 + 0.3 * (lat - 25))[:, None] * np.cos(2 * np.pi * (day - 200) / YEAR)
    waves = rng.standard_normal((256, 2)) / 6  # weather is alike over some six degrees
    phase = rng.uniform(0, 2 * np.pi, len(waves))
    shapes = np.sqrt(2 / len(waves)) * np.cos(np.column_stack([lon, lat]) @ waves.T + phase)
    drive = np.sqrt(1 - 0.7**2) * rng.standard_normal((len(waves), days))
    strength = scipy.signal.lfilter([1], [1, -0.7], drive)
    values = climate[:, None] + season + 4 * shapes @ strength
    values += rng.standard_normal(values.shape)
    values[rng.random(values.shape) < MISSING] = np.nan
    return Network(lon, lat, elevation, np.datetime64("2008-01-01"), values.round(1))
