"""Rows of all benchmarks: files of DASKGP_DATA, fields of known processes, functions, stores.

Fields on grids and the large survey are drawn on a torus that is longer than the grid, by the
spectrum of their covariance (circulant embedding); rows and places of the survey are centres of
cells of its grid.  The others are drawn exactly, rows and places together, by a Cholesky factor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import scipy.fft
import scipy.linalg
import scipy.signal
import scipy.special

from daskgp import kernels

PLACES = 2_000
CLIPPED = 1e-6
"""Share of a spectrum that may be negative, and is set to zero, before the torus is doubled."""


class Split(NamedTuple):
    """Rows to learn from and rows to predict, with the values without noise where known."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    f_test: np.ndarray | None = None

    def thinned(self, rows: int | None) -> Split:
        """Return at most so many rows to learn from and others in proportion, at random."""
        if rows is None or rows >= len(self.y):
            return self
        rng, share = np.random.default_rng(0), len(self.y_test) / len(self.y)
        train, test = (
            np.sort(rng.permutation(len(y))[: max(1, int(size))])
            for y, size in ((self.y, rows), (self.y_test, share * rows))
        )
        f_test = None if self.f_test is None else self.f_test[test]
        return Split(self.X[train], self.y[train], self.X_test[test], self.y_test[test], f_test)

    def varying(self) -> Split:
        """Return the rows without columns that are constant among those to learn from."""
        varies = np.ptp(self.X, axis=0) > 0
        return self._replace(X=self.X[:, varies], X_test=self.X_test[:, varies])

    def standardised(self, inputs: bool = False) -> Split:
        """Return standardised targets, and inputs, without columns that are constant."""
        X, _, X_test, *_ = self.varying()
        if inputs:
            shift, scale = X.mean(axis=0), X.std(axis=0)
            X, X_test = (X - shift) / scale, (X_test - shift) / scale
        centre, unit = self.y.mean(), self.y.std()
        return Split(X, (self.y - centre) / unit, X_test, (self.y_test - centre) / unit)

    def drawn(self, rows: int | None) -> Split:
        """Return so many of the rows to learn from, at random, and all others."""
        few = np.sort(np.random.default_rng(0).permutation(len(self.y))[:rows])
        return self._replace(X=np.asarray(self.X[few]), y=np.asarray(self.y[few]))

    def drawn_places(self, number: int) -> np.ndarray:
        """Return so many of the places to predict, at random."""
        order = np.random.default_rng(0).permutation(len(self.X_test))
        return self.X_test[np.sort(order[:number])]

    def again(self, share: float, seed: int, rows: int | None = None) -> Split:
        """Return another split of so many of all rows, with that share to learn from."""
        X, y = np.concatenate([self.X, self.X_test]), np.concatenate([self.y, self.y_test])
        order = np.random.default_rng(seed).permutation(len(y))[:rows]
        train, test = np.split(order, [round(share * len(order))])
        return Split(X[train], y[train], X[test], y[test])


# -- files -----------------------------------------------------------------------------------

UCI = ("bike", "elevators", "keggdirected", "kin40k", "pol", "protein")
FIELDS = ("satellite", "air", "stations", "terrain", "exponential", "survey")
"""Fields in space, and in time, of about 100,000 rows to learn from; the last two are drawn."""
FILES = {
    "satellite": "satellite",
    "air": "air_temperature",
    "stations": "ghcn_hcn_daily_2008_2017",
    "terrain": "srtm_S33W071",
    "srtm": "srtm_S33W071",
}
FIELD_ROWS, FIELD_PLACES = 100_000, 20_000


def file_of(name: str) -> Path:
    """Return the file of a set in DASKGP_DATA; UsageError without the variable."""
    folder = os.environ.get("DASKGP_DATA")
    if not folder:
        raise click.UsageError("set DASKGP_DATA to the folder that holds uci/ and spatial/")
    return Path(folder, "uci" if name in UCI else "spatial", f"{FILES.get(name, name)}.npz")


def present(names: Iterable[str]) -> list[str]:
    """Return the sets that are generated or lie in DASKGP_DATA; UsageError if none does."""
    data, names = os.environ.get("DASKGP_DATA"), list(names)
    found = [
        name for name in names if name not in (*UCI, *FILES) or (data and file_of(name).exists())
    ]
    if names and not found:
        raise click.UsageError(
            f"set DASKGP_DATA to the folder with the files of {', '.join(names)}: "
            "uci/NAME.npz has X, y and test_mask, spatial/NAME.npz what datasets.py says"
        )
    return found


def uci(name: str, split: int = 0) -> Split:
    """Return a split of a set: X, y and a column of test_mask of uci/NAME.npz."""
    with np.load(file_of(name)) as found:
        X, y = found["X"], np.ravel(found["y"])
        test = found["test_mask"][:, split].astype(bool)
    return Split(X[~test], y[~test], X[test], y[test])


def satellite() -> Split:
    """Return the land-surface temperatures of Heaton et al. 2019 by longitude and latitude.

    spatial/satellite.npz has lon, lat, mask_temp, true_temp, train and test.
    """
    with np.load(file_of("satellite")) as found:
        flat = {name: values.ravel() for name, values in found.items()}
    X = np.column_stack([flat["lon"], flat["lat"]])
    train, test = flat["train"].astype(bool), flat["test"].astype(bool)
    return Split(X[train], flat["mask_temp"][train], X[test], flat["true_temp"][test])


def air_grid(times: int) -> tuple[Any, Any]:
    """Return air temperatures in kelvin on a grid, every six hours, and which are left out.

    spatial/air_temperature.npz has air_centikelvin (time, lat, lon), hours, lat and lon.  A disc of
    12 degrees around a place at random is left out for four days at a time.
    """
    import xarray as xr

    span, radius = 16, 12.0
    with np.load(file_of("air")) as found:
        y = found["air_centikelvin"][:times] / 100
        hours, lat, lon = found["hours"][:times], found["lat"], found["lon"]
    rng, out = np.random.default_rng(0), np.zeros(y.shape, bool)
    for start in range(0, times, span):
        middle = rng.choice(lat[3:-3]), rng.choice(lon[3:-3])
        far = np.hypot(lat[:, None] - middle[0], lon - middle[1])
        out[start : start + span] = far <= radius
    steps = (hours - hours[0]).astype("timedelta64[h]")
    units = {"lat": {"units": "degrees_north"}, "lon": {"units": "degrees_east"}}
    time = np.datetime64("2013-01-01", "ns") + steps
    axes = {"time": time, "lat": ("lat", lat, units["lat"]), "lon": ("lon", lon, units["lon"])}
    grid = xr.DataArray(y, axes, ("time", "lat", "lon"), "air", {"units": "K"})
    return grid, grid.copy(data=out)


def air() -> Split:
    """Return the rows of 20 days of ``air_grid``: longitude, latitude, hours."""
    grid, out = air_grid(80)
    hours = (grid.time - grid.time[0]).values / np.timedelta64(1, "h")
    where = np.meshgrid(hours, grid.lat, grid.lon, indexing="ij")
    X = np.column_stack([values.ravel() for values in (where[2], where[1], where[0])])
    X, y, left_out = X.astype(np.float64), grid.values.ravel(), out.values.ravel()
    return Split(X[~left_out], y[~left_out], X[left_out], y[left_out])


def station_year() -> Split:
    """Return a year of daily maxima of the U.S. stations, months of a station left out."""
    network = stations(365, 300)
    out, known = network.left_out(), np.isfinite(network.values)
    lon, lat, elevation, day = (
        np.broadcast_to(values if along == "day" else values[:, None], known.shape)
        for along, values in (network.features()[name] for name in PLACE)
    )
    X = np.stack([lon, lat, elevation, day], axis=-1)
    return _drawn_from(X[known], network.values[known], out[known])


def terrain() -> Split:
    """Return heights of the Andes by longitude and latitude, at cells drawn at random.

    spatial/srtm_S33W071.npz has elev_m (lat, lon), lat, lon and valid.
    """
    with np.load(file_of("terrain")) as found:
        lat, lon = np.meshgrid(found["lat"], found["lon"], indexing="ij")
        X, y = np.stack([lon, lat], axis=-1)[found["valid"]], found["elev_m"][found["valid"]]
    out = np.random.default_rng(1).random(len(y)) < 0.1
    return _drawn_from(X, y.astype(np.float64), out)


def srtm() -> Split:
    """Return all heights of the Andes, with voids like those of radar: discs of 3 to 12 cells.

    They are left out until a tenth of the cells is.
    """
    with np.load(file_of("srtm")) as found:
        lat, lon = np.meshgrid(found["lat"], found["lon"], indexing="ij")
        valid, y = found["valid"], found["elev_m"].astype(np.float64)
    rng, out = np.random.default_rng(0), np.zeros(y.shape, bool)
    rows, columns = np.ogrid[: len(y), : y.shape[1]]
    while out.mean() < 0.1:
        middle, radius = rng.integers(0, y.shape), rng.uniform(3, 12)
        near = [slice(max(0, c - 12), c + 13) for c in middle]
        apart = np.hypot(rows[near[0]] - middle[0], columns[:, near[1]] - middle[1])
        out[tuple(near)] |= apart <= radius
    X = np.stack([lon, lat], axis=-1)
    return Split(X[valid & ~out], y[valid & ~out], X[valid & out], y[valid & out])


def _drawn_from(X: np.ndarray, y: np.ndarray, out: np.ndarray) -> Split:
    """Return FIELD_ROWS of the rows at random, and FIELD_PLACES of those that are left out."""
    rng = np.random.default_rng(0)
    train = np.sort(rng.permutation(np.flatnonzero(~out))[:FIELD_ROWS])
    test = np.sort(rng.permutation(np.flatnonzero(out))[:FIELD_PLACES])
    return Split(X[train], y[train], X[test], y[test])


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


# -- stations --------------------------------------------------------------------------------

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


# -- functions -------------------------------------------------------------------------------


def friedman() -> Split:
    """Return Friedman's first function, of five features of ten, with unit noise variance."""
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(22_000, n_features=10, noise=1.0, random_state=0)
    return Split(X[:20_000], y[:20_000], X[20_000:], y[20_000:])


def heteroscedastic() -> Split:
    """Return a smooth function of four features; the noise of one end is ten times the other's."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (22_000, 4))
    f = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) + X[:, 2] ** 2 + 0.5 * X[:, 3]
    y = f + 0.05 * 10 ** ((1 + X[:, 0]) / 2) * rng.standard_normal(len(f))
    return Split(X[:20_000], y[:20_000], X[20_000:], y[20_000:])


def smooth(rows: int, features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw X and y of a smooth function with noise of variance 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features))
    return X, np.sin(X @ np.linspace(1, 0.2, features)) + 0.1**0.5 * rng.standard_normal(rows)


def sines(rows: int, features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw X in a cube and y, a sum of waves along its sides with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, features))
    return X, np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(rows)


def rough(rows: int, features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw X in the unit cube and y, waves of many lengths with noise of variance 0.1."""
    waves, rng = np.random.default_rng(0), np.random.default_rng(seed + 1)
    lengths = np.geomspace(0.01, 1, 24)
    turns = waves.standard_normal((24, features)) / lengths[:, None]
    X = rng.uniform(0, 1, (rows, features))
    phase = 2 * np.pi * X @ turns.T + waves.uniform(0, 2 * np.pi, 24)
    return X, np.sin(phase) @ np.sqrt(lengths) + 0.1**0.5 * rng.standard_normal(rows)


def griewank(X: np.ndarray) -> np.ndarray:
    """Return the function of Griewank (1981) at the rows of X (n, d)."""
    waves = np.cos(X / np.sqrt(np.arange(1, X.shape[1] + 1)))
    return 1 + (X**2).sum(axis=1) / 4000 - waves.prod(axis=1)


def ackley(X: np.ndarray) -> np.ndarray:
    """Return the function of [OPT] eq. 47 at the rows of X (n, d)."""
    far = np.exp(-0.2 * np.sqrt(np.mean(X**2, axis=1)))
    return -20 * far - np.exp(np.mean(np.cos(2 * np.pi * X), axis=1)) + 20 + np.e


def ackley_square(rows: int, noise: float, seed: int, side: int = 50) -> Split:
    """Return rows at random in [-1, 1]² with noise of a variance, places on a grid without."""
    rng, line = np.random.default_rng(seed), np.linspace(-1, 1, side)
    X = rng.uniform(-1, 1, (rows, 2))
    y = ackley(X) + np.sqrt(noise) * rng.standard_normal(rows)
    places = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    return Split(X, y, places, ackley(places))


def two_lengths(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows at random in [-1, 1]² with targets of an exact GP of two lengthscales.

    They are 0.3 and 1.3; standard deviations are 0.2 of f and 0.1 of noise.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 2))
    K = kernels.RBF((0.3, 1.3), 0.04, ard=True)(X)
    K[np.diag_indices(rows)] += 0.01
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows)


def sequence(xp: Any, start: int, stop: int, d: int) -> tuple[Any, Any]:
    """Return X (n, d) of a low-discrepancy sequence and y (n, 1), made by an array module."""
    i = xp.arange(start + 1, stop + 1, dtype=np.float64)[:, None]
    steps = xp.asarray(np.modf(np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0][:d]))[0])
    X = i * steps
    X -= X.astype(np.int64)  # X is positive: this is its fraction
    noise = xp.sin(12.9898 * i) * 43758.5453
    return X, xp.sin(6 * X.sum(axis=1, keepdims=True)) + 0.3 * xp.sin(noise)


# -- stores ----------------------------------------------------------------------------------


def write(path: Path, parts: Iterable[tuple[np.ndarray, np.ndarray]], rows: int, chunk: int) -> str:
    """Write a dataset store chunk by chunk: plain Zarr; return its path as text."""
    import zarr

    group, start = zarr.open_group(path, mode="w"), 0
    for X, y in parts:
        if not start:
            chunk = min(chunk, rows)
            for name, shape in (("X", (rows, X.shape[1])), ("y", (rows,))):
                chunks = (chunk, *shape[1:])
                group.create_array(name, shape=shape, chunks=chunks, dtype="f8")
        group["X"][start : start + len(X)], group["y"][start : start + len(X)] = X, y
        start += len(X)
    return str(path)


def write_drawn(
    path: Path, draw: Callable[..., tuple], rows: int, features: int, chunk: int
) -> str:
    """Write rows of a function of this file, each chunk from a seed of its own."""
    starts = range(0, rows, chunk)
    parts: Iterator[tuple] = (draw(min(chunk, rows - s), features, s) for s in starts)
    return write(path, parts, rows, chunk)


def store(
    folder: Path, draw: Callable[..., tuple], rows: int, features: int, chunk: int = 65_536
) -> str:
    """Return the path of rows of a function of this file, drawn once and kept in a folder."""
    path = folder / f"{draw.__name__}-{rows}-{features}-{chunk}.zarr"
    return str(path) if path.exists() else write_drawn(path, draw, rows, features, chunk)


# -- fields ----------------------------------------------------------------------------------


class Truth(NamedTuple):
    """Kernel of the process, in the units of X, and the variance of the noise."""

    family: str
    lengthscale: float
    variance: float
    noise: float

    @property
    def kernel(self) -> kernels.Kernel:
        """The kernel with its hyper-parameters."""
        return kernels.parse(
            f"{self.family}(lengthscale={self.lengthscale}, variance={self.variance})"
        )


Draw = Callable[[np.random.Generator, Truth, bool], Split]


# -- grids -----------------------------------------------------------------------------------


def torus(rng: np.random.Generator, shape: tuple[int, int], truth: Truth) -> np.ndarray:
    """Return values on a grid whose cells have side 1."""
    for factor in (2, 4, 8):
        size = [scipy.fft.next_fast_len(factor * n, real=True) for n in shape]
        away = [np.minimum(np.arange(n), n - np.arange(n)) for n in size]
        distance = np.hypot(away[0][:, None], away[1])
        covariance = truth.kernel(distance.reshape(-1, 1), np.zeros((1, 1))).reshape(size)
        spectrum = scipy.fft.rfft2(covariance).real
        if -spectrum[spectrum < 0].sum() < CLIPPED * spectrum.sum():
            break
    white = scipy.fft.rfft2(rng.standard_normal(size))
    values = scipy.fft.irfft2(np.sqrt(np.maximum(spectrum, 0)) * white, s=size)
    return values[: shape[0], : shape[1]]


def grid(shape: tuple[int, int], cell: float) -> Draw:
    """Return how to draw a field on (rows, columns) of cells with gaps like those of clouds."""

    def draw(rng: np.random.Generator, truth: Truth, tiny: bool) -> Split:
        cells = tuple(n // 10 for n in shape) if tiny else shape
        side = 10 * cell if tiny else cell
        f = torus(rng, cells, truth._replace(lengthscale=truth.lengthscale / side)).ravel()
        clouds = torus(rng, cells, Truth("rbf", 0.15 / side, 1.0, 0.0)).ravel()
        places = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), axis=-1)
        X = side * places.reshape(-1, 2)[:, ::-1].astype(float)
        order = np.argsort(clouds)
        share = (105_569 / 150_000, 148_309 / 150_000)
        first, last = (round(part * len(f)) for part in share)
        return noisy(
            rng, truth, X, f, order[:first], rng.permutation(order[first:])[: last - first]
        )

    return draw


def survey(rng: np.random.Generator, truth: Truth, tiny: bool) -> Split:
    """Draw a survey along lines: cells of 10 m, lines 400 m apart that waver, a few across."""
    shape = (400, 600) if tiny else (1_600, 2_500)
    rows, places = (3_000, 1_000) if tiny else (105_000, 83_000)
    cell = 0.01
    f = torus(rng, shape, truth._replace(lengthscale=truth.lengthscale / cell)).ravel()
    along = [waver(rng, middle, shape[1], shape[0]) for middle in range(20, shape[0], 40)]
    across = [waver(rng, middle, shape[0], shape[1]) for middle in range(300, shape[1], 600)]
    flown = [line * shape[1] + np.arange(shape[1]) for line in along]
    flown += [np.arange(shape[0]) * shape[1] + line for line in across]
    cells = np.unique(np.concatenate(flown))
    train = np.sort(rng.permutation(cells)[:rows])
    test = np.sort(rng.permutation(np.setdiff1d(np.arange(len(f)), cells))[:places])
    X = cell * np.column_stack([np.arange(len(f)) % shape[1], np.arange(len(f)) // shape[1]])
    return noisy(rng, truth, X, f, train, test)


def waver(rng: np.random.Generator, middle: int, length: int, most: int) -> np.ndarray:
    """Return the cells of a line that strays from its middle by about four cells."""
    steps = np.arange(length) / 150
    strays = sum(rng.normal(0, 2) * np.sin(k * steps + rng.uniform(0, 6.3)) for k in (1, 2, 3))
    return np.clip(np.rint(middle + strays), 0, most - 1).astype(int)


def noisy(
    rng: np.random.Generator,
    truth: Truth,
    X: np.ndarray,
    f: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
) -> Split:
    """Return the rows and places picked, with noise in y."""
    y = f + np.sqrt(truth.noise) * rng.standard_normal(len(f))
    return Split(X[train], y[train], X[test], y[test], f[test])


# -- scattered rows --------------------------------------------------------------------------


def scattered(
    rows: int, place: Callable[[np.random.Generator, int], np.ndarray], spread: bool = False
) -> Draw:
    """Return how to draw values at rows and 2,000 places alike, or at places ``spread`` evenly."""

    def draw(rng: np.random.Generator, truth: Truth, tiny: bool) -> Split:
        n, more = (rows // 10, PLACES // 10) if tiny else (rows, PLACES)
        X = place(rng, n if spread else n + more)
        if spread:
            even = rng.uniform(X.min(axis=0), X.max(axis=0), (more, X.shape[1]))
            X = np.concatenate([X, even])
        K = truth.kernel(X, X)
        K[np.diag_indices_from(K)] += 1e-9 * truth.variance
        L = scipy.linalg.cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        f = L @ rng.standard_normal(len(X))
        return noisy(rng, truth, X, f, np.arange(n), np.arange(n, n + more))

    return draw


def lines(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place rows along 20 lines, 0.3 apart and 10 long."""
    which = np.arange(rows) % 20
    return np.column_stack([rng.uniform(0, 10, rows), 0.3 * which + rng.normal(0, 0.01, rows)])


def log_normal(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place rows with independent log-normal coordinates."""
    return np.exp(rng.standard_normal((rows, 2)))


def cluster(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place 80 % of the rows in the middle 1 % of the unit square."""
    X, inside = rng.uniform(size=(rows, 2)), rng.uniform(size=rows) < 0.8
    return np.where(inside[:, None], 0.45 + 0.1 * X, X)


def bursts(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place 80 % of the samples in four bursts that take 1 % of the time."""
    time, inside = rng.uniform(size=rows), rng.uniform(size=rows) < 0.8
    burst = np.array([0.13, 0.37, 0.61, 0.83])[rng.integers(4, size=rows)]
    return np.where(inside, burst + 0.0025 * time, time)[:, None]


def clusters(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place 80 % of the rows in a cluster a tenth as wide as that of the others, in space."""
    dense = rng.uniform(size=rows) < 0.8
    X = rng.standard_normal((rows, 3))
    return np.where(dense[:, None], 0.05 * X, 1 + 0.5 * X)


def uniform(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place rows evenly in the unit square."""
    return rng.uniform(size=(rows, 2))


# -- the globe -------------------------------------------------------------------------------

EARTH = 6371.0088
GAP = 12.0
"""Radius of gaps, in degrees of arc."""
DATE_LINE = [(180.0, lat) for lat in (-60.0, -30.0, 0.0, 30.0, 60.0)]
ELSEWHERE = [(-90.0, -45.0), (0.0, -30.0), (90.0, -15.0), (-60.0, 15.0), (30.0, 45.0)]
GAPS = {"poles": [(0.0, 90.0), (0.0, -90.0)], "date_line": DATE_LINE, "elsewhere": ELSEWHERE}
"""Longitude and latitude of the middles of gaps."""


class Globe(NamedTuple):
    """Monthly values on a grid of the sphere.

    Longitudes (J,) and latitudes (I,) of the cells, the values without noise (T, I, J), those of
    rows, NaN where there is none, and a mask (I, J) of each kind of gap.
    """

    lon: np.ndarray
    lat: np.ndarray
    f: np.ndarray
    y: np.ndarray
    gaps: dict[str, np.ndarray]

    def places(self, kind: str, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return so many places (n, 3) in gaps of a kind, at random, and their values (n,)."""
        month, i, j = np.nonzero(np.broadcast_to(self.gaps[kind], self.f.shape))
        few = np.random.default_rng(0).permutation(len(month))[:number]
        month, i, j = month[few], i[few], j[few]
        return np.column_stack([self.lon[j], self.lat[i], month]), self.f[month, i, j]


def globe(
    rng: np.random.Generator, space: Truth, time: Truth, shape: tuple[int, int, int], rows: int
) -> Globe:
    """Draw a sum of spherical harmonics whose coefficients change from month to month.

    Its covariance is the product of a kernel of the chord in km and one of months, cut at degree
    60; ``shape`` is the number of months, of latitudes and of longitudes.  Values of ``rows`` cells
    outside the gaps, at random, have the noise of ``space``.
    """
    months, *sides = shape
    lat, lon = (
        width * ((np.arange(n) + 0.5) / n - 0.5) for n, width in zip(sides, (180, 360), strict=True)
    )
    month = np.arange(months, dtype=float)[:, None]
    root = np.linalg.cholesky(time.kernel(month, month) + 1e-9 * np.eye(months))
    f = np.zeros(shape)
    for wave, functions in harmonics(space, np.radians(lon), np.radians(lat)):
        coefficients = root @ rng.standard_normal((months, len(functions)))
        f += (coefficients @ functions)[:, :, None] * wave
    gaps = {kind: around(lon, lat, middles) for kind, middles in GAPS.items()}
    outside = np.flatnonzero(np.broadcast_to(~np.any([*gaps.values()], axis=0), shape))
    measured = rng.permutation(outside)[:rows]
    y = np.full(f.size, np.nan)
    y[measured] = f.ravel()[measured] + np.sqrt(space.noise) * rng.standard_normal(len(measured))
    return Globe(lon, lat, f, y.reshape(shape), gaps)


def harmonics(
    truth: Truth, lon: np.ndarray, lat: np.ndarray, degree: int = 60
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield waves (J,) along longitudes and functions (k, I) of latitudes, in radians.

    With independent standard normal coefficients the sum of all products has the kernel's
    covariance: the variance of a degree is the coefficient of its Legendre polynomial.
    """
    nodes, weights = np.polynomial.legendre.leggauss(4 * degree)
    chord = EARTH * np.sqrt(2 - 2 * nodes)
    weights = 2 * np.pi * weights * truth.kernel(chord[:, None], np.zeros((1, 1)))[:, 0]
    for m in range(degree + 1):
        ells = np.arange(m, degree + 1)[:, None]
        variance = scipy.special.eval_legendre(ells, nodes) @ weights
        sizes = scipy.special.gammaln(ells - m + 1) - scipy.special.gammaln(ells + m + 1)
        norms = (2 * ells + 1) * (2 if m else 1) / (4 * np.pi) * np.exp(sizes)
        functions = scipy.special.lpmv(m, ells, np.sin(lat))
        functions *= np.sqrt(norms * np.maximum(variance, 0)[:, None])
        yield np.cos(m * lon), functions
        if m:
            yield np.sin(m * lon), functions


def around(lon: np.ndarray, lat: np.ndarray, middles: Iterable[tuple[float, float]]) -> np.ndarray:
    """Return a mask (I, J) of the cells that are in a gap around one of some places."""
    cells = unit(lon, lat[:, None])
    points = unit(*np.transpose([*middles]))
    return (cells @ points.T >= np.cos(np.radians(GAP))).any(axis=-1)


def unit(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """Return places (…, 3) on the unit sphere of degrees east and north."""
    lon, lat = np.broadcast_arrays(np.radians(lon), np.radians(lat))
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)


# -- cases -----------------------------------------------------------------------------------


class Case(NamedTuple):
    """How to draw a field, the process, how many seeds, and settings that the question fixes."""

    draw: Draw
    truth: Truth
    seeds: int = 1
    settings: dict[str, object] = {}  # noqa: RUF012  never changed


_OF_SATELLITE = {"lengthscale": 4 / 3, "variance": 16.4, "noise": 0.05}
_CELL = 4.6 / 500
_ROUGH, _SMOOTH = (Truth(family, **_OF_SATELLITE) for family in ("matern12", "matern32"))
_SURVEY = Truth("matern12", 0.16, 60.0, 2.5)

CASES = {
    "exponential": Case(grid((300, 500), _CELL), _ROUGH, 3),
    "matern32": Case(grid((300, 500), _CELL), _SMOOTH, 3),
    "long-exponential": Case(grid((173, 867), _CELL), _ROUGH, 3),
    "long-matern32": Case(grid((173, 867), _CELL), _SMOOTH, 3),
    "survey": Case(survey, _SURVEY),
    "lines-nugget": Case(scattered(8_000, lines, True), Truth("matern32", 0.5, 1.0, 0.05)),
    "lines": Case(scattered(8_000, lines, True), Truth("matern32", 0.5, 1.0, 0.0)),
    "log-normal": Case(scattered(8_000, log_normal), Truth("matern32", 0.5, 1.0, 0.01)),
    "cluster": Case(scattered(12_000, cluster), Truth("matern32", 0.05, 1.0, 0.01)),
    "bursts": Case(scattered(6_000, bursts), Truth("matern32", 0.005, 1.0, 0.01)),
    "two-clusters": Case(scattered(8_000, clusters), Truth("matern32", 0.3, 1.0, 0.01)),
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
