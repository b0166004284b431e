"""Methods for spatial data side by side on one field with large gaps.

    [DASKGP_DATA=folder] python workflows/benchmarks/spatial.py [--methods lma,gpboost] [--rows N]

With DASKGP_DATA, a folder that holds ``spatial/satellite.npz`` (lon, lat, mask_temp, true_temp,
train, test: the land-surface temperatures of Heaton et al. 2019, 105,569 rows to learn from and
42,740 to predict); without, a generated rough field with gaps of the same kind.  Features are
longitude and latitude, scores are those of Heaton et al. in the units of the data, of predictions
of y with its noise.

Each method runs in a fresh process with two threads or two workers.  Seconds are those from the
start of that process to its end, with imports, and for daskgp with the conversion to Zarr and every
start of a cluster; fit and predict are also given alone.  Memory is the largest sum of resident
memory over the process and all its children, sampled every 0.1 s.

- ``lma``, ``pic``, ``sgpr``: daskgp's command line, convert, fit and predict, as a user would;
  ``lma-defaults`` without a setting, ``lma-kernel`` with the name of the kernel alone.
- ``gpboost``: the Vecchia approximation of GPBoost, 20 neighbours to learn and 50 to predict.
- ``local``: an exact GP a block of about 300 rows, each predicting the places inside its block
  alone, on one thread.
- ``fvgp``: one log-likelihood of fvGP's gp2Scale on 20,000 rows, a time and no prediction.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import common
import numpy as np
from rich.console import Console

import daskgp

DASKGP: dict[str, tuple[str, dict[str, object]]] = {
    "lma": (
        "lma",
        {
            "kernel": "matern12()",
            "n_support": 256,
            "support": "kmeans",
            "markov_order": 3,
            "predict_order": 5,
            "block_rows": 200,
            "train_blocks": 128,
            "max_iter": 20,
        },
    ),
    "lma-defaults": ("lma", {}),
    "lma-kernel": ("lma", {"kernel": "matern12()"}),
    "pic": (
        "pic",
        {
            "kernel": "matern12()",
            "n_support": 256,
            "block_rows": 300,
            "train_blocks": 64,
            "max_iter": 20,
        },
    ),
    "sgpr": (
        "sgpr",
        {"kernel": "matern12()", "n_inducing": 1024, "train_inducing": "true", "max_iter": 30},
    ),
}
"""Model and settings of daskgp's rows."""

INPUTS = ("n_inducing", "n_support")
"""Settings that a tiny run lowers to half of its rows."""

TRAIN_ROWS, TEST_SHARE = 105_569, 0.405
LOCAL_ROWS, LOCAL_TRAIN_BLOCKS = 300, 64
FVGP_ROWS, FVGP_RADIUS = 20_000, 0.2
"""Rows of fvGP's log-likelihood and the radius in degrees beyond which its kernel is zero."""


@dataclass(frozen=True)
class Field:
    """Rows to learn from and places to predict; X (n, 2) in degrees."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def thinned(self, rows: int) -> Field:
        """At most so many training rows and test rows in proportion, drawn at random."""
        rng = np.random.default_rng(0)
        train, test = (
            np.sort(rng.permutation(len(y))[: max(1, int(size))])
            for y, size in ((self.y, rows), (self.y_test, TEST_SHARE * rows))
        )
        return Field(self.X[train], self.y[train], self.X_test[test], self.y_test[test])

    def save(self, path: Path) -> None:
        """Write what ``load`` reads."""
        np.savez(path, X=self.X, y=self.y, X_test=self.X_test, y_test=self.y_test)

    @classmethod
    def load(cls, path: Path) -> Field:
        """The field that ``save`` wrote."""
        found = np.load(path)
        return cls(*(found[name] for name in ("X", "y", "X_test", "y_test")))


@dataclass(frozen=True)
class Outcome:
    """Prediction of y at the test places, if any, and what it took."""

    fit_s: float
    predict_s: float | None = None
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None
    remark: str = ""


# -- data ------------------------------------------------------------------------------------


def satellite(path: Path) -> Field:
    """The land-surface temperatures; the target of a test place is what the gap hid."""
    found = {name: values.ravel() for name, values in np.load(path).items()}
    X = np.column_stack([found["lon"], found["lat"]])
    train, test = found["train"].astype(bool), found["test"].astype(bool)
    return Field(X[train], found["mask_temp"][train], X[test], found["true_temp"][test])


def generated(rows: int) -> Field:
    """A field with exponential covariance and noise on a grid, hidden where another is high."""
    rng = np.random.default_rng(0)
    scale = int(np.ceil(np.sqrt((1 + TEST_SHARE) * rows / 15)))
    shape = (3 * scale, 5 * scale)
    lat, lon = (np.linspace(0, size, n) for size, n in zip((2.8, 4.6), shape, strict=True))
    X = np.column_stack([a.ravel() for a in np.meshgrid(lon, lat)])
    cell = 2.8 / shape[0]
    temperature = 35 + 3 * random_field(rng, shape, 0.5 / cell, power=1)
    y = temperature.ravel() + 0.5 * rng.standard_normal(len(X))
    clouds = random_field(rng, shape, 0.4 / cell, power=2).ravel()
    train = clouds < np.quantile(clouds, 1 / (1 + TEST_SHARE))
    return Field(X[train], y[train], X[~train], y[~train])


def random_field(
    rng: np.random.Generator, shape: tuple[int, int], reach: float, power: int
) -> np.ndarray:
    """Unit variance and covariance exp(-(d / reach)^power), by its spectrum on a larger torus."""
    size = [2 * n for n in shape]
    away = [np.minimum(np.arange(n), n - np.arange(n)) for n in size]
    covariance = np.exp(-((np.hypot(away[0][:, None], away[1]) / reach) ** power))
    spectrum = np.maximum(np.fft.fft2(covariance).real, 0)
    white = np.fft.fft2(rng.standard_normal(size))
    return np.fft.ifft2(np.sqrt(spectrum) * white).real[: shape[0], : shape[1]]


# -- methods ---------------------------------------------------------------------------------


def with_daskgp(name: str, field: Field, threads: int) -> Outcome:
    """The commands convert, fit and predict, in a folder of their own."""
    import zarr

    model, settings = DASKGP[name]
    options = []
    for key, value in settings.items():
        lowered = min(int(str(value)), len(field.y) // 2) if key in INPUTS else value
        options += ["--set", f"{key}={lowered}"]
    workers = ("--workers", str(threads))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part, X, y in (("train", field.X, field.y), ("test", field.X_test, field.y_test)):
            np.savez(folder / f"{part}.npz", lon=X[:, 0], lat=X[:, 1], y=y)
            columns = ("--target", "y", "--features", "lon,lat")
            common.daskgp(folder, "convert", f"{part}.npz", f"{part}.zarr", *columns)
        stores = ("train.zarr", "model.zarr")
        fit = common.daskgp(folder, "fit", *stores, "--model", model, *options, *workers)
        stores = ("model.zarr", "test.zarr", "out.zarr")
        predict = common.daskgp(folder, "predict", *stores, *workers)
        out = zarr.open_group(folder / "out.zarr", mode="r")
        mean, variance = (np.ravel(np.asarray(out[name])) for name in ("mean", "variance"))
    return Outcome(fit.seconds, predict.seconds, mean, variance)


def with_gpboost(field: Field, threads: int) -> Outcome:
    """GPBoost's Vecchia approximation with a constant mean."""
    import gpboost

    began = time.perf_counter()
    model = gpboost.GPModel(
        gp_coords=field.X,
        cov_function="exponential",
        gp_approx="vecchia",
        num_neighbors=20,
        num_parallel_threads=threads,
    )
    model.fit(y=field.y, X=np.ones((len(field.y), 1)))
    fitted = time.perf_counter()
    model.set_prediction_data(num_neighbors_pred=50)
    found = model.predict(
        gp_coords_pred=field.X_test,
        X_pred=np.ones((len(field.X_test), 1)),
        predict_var=True,
        predict_response=True,
    )
    done = time.perf_counter()
    noise, variance, reach = (float(value) for value in np.ravel(model.get_cov_pars(False)))
    remark = f"noise {noise:.3g}, variance {variance:.3g}, range {reach:.3g}"
    return Outcome(fitted - began, done - fitted, found["mu"], found["var"], remark)


def with_local(field: Field, threads: int) -> Outcome:
    """Independent exact GPs on blocks; hyper-parameters from the evidence of some of them."""
    began = time.perf_counter()
    shift, scale = field.X.mean(axis=0), field.X.std(axis=0)
    centre, unit = field.y.mean(), field.y.std()
    X, X_test = (field.X - shift) / scale, (field.X_test - shift) / scale
    scaled = Field(X, (field.y - centre) / unit, X_test, field.y_test)
    blocks = halved(X, X_test, np.arange(len(X)), np.arange(len(X_test)))
    drawn = np.random.default_rng(0).permutation(len(blocks))[:LOCAL_TRAIN_BLOCKS]
    variance, lengthscale, noise = trained(
        [(X[rows], scaled.y[rows]) for rows in (blocks[i][0] for i in drawn)]
    )
    kernel = daskgp.kernels.Matern12(variance=variance, lengthscale=lengthscale)
    fitted = time.perf_counter()
    mean, spread = local_gps(scaled, blocks, kernel, noise)
    done = time.perf_counter()
    remark = f"standardised: noise {noise:.3g}, variance {variance:.3g}, range {lengthscale:.3g}"
    return Outcome(fitted - began, done - fitted, centre + unit * mean, unit**2 * spread, remark)


def local_gps(
    field: Field,
    blocks: list[tuple[np.ndarray, np.ndarray]],
    kernel: daskgp.kernels.Kernel,
    noise_variance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of y at the test places, each block from its own rows alone."""
    model = daskgp.ExactGP(
        kernel,
        noise_variance=noise_variance,
        mean="zero",
        standardize=False,
        optimizer=None,
        progress=False,
    )
    mean, variance = np.empty(len(field.X_test)), np.empty(len(field.X_test))
    for rows, places in blocks:
        if len(places):
            model.fit(field.X[rows], field.y[rows])
            at = field.X_test[places]
            mean[places], std = model.predict(at, return_std=True, include_noise=True)
            variance[places] = std**2
    return mean, variance


def halved(
    X: np.ndarray, X_test: np.ndarray, rows: np.ndarray, places: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows and test places of blocks of about equal size: cells cut across their longer side."""
    pieces = round(len(rows) / LOCAL_ROWS)
    if pieces < 2:
        return [(rows, places)]
    side = int(np.argmax(np.ptp(X[rows], axis=0)))
    order = rows[np.argsort(X[rows, side], kind="stable")]
    middle = len(order) * (pieces // 2) // pieces
    low = X_test[places, side] < X[order[middle], side]
    return [
        *halved(X, X_test, order[:middle], places[low]),
        *halved(X, X_test, order[middle:], places[~low]),
    ]


def trained(blocks: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Variance, lengthscale and noise of the largest summed log evidence of the blocks."""
    from scipy import linalg, optimize, spatial

    distances = [spatial.distance.squareform(spatial.distance.pdist(X)) for X, _ in blocks]

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        variance, lengthscale, noise = np.exp(logs)
        value, gradient = 0.0, np.zeros(3)
        for D, (_, y) in zip(distances, blocks, strict=True):
            K = variance * np.exp(-D / lengthscale)
            L = linalg.cholesky(K + noise * np.eye(len(y)), lower=True)
            inverse = linalg.cho_solve((L, True), np.eye(len(y)))
            alpha = inverse @ y
            value += 0.5 * (y @ alpha) + np.log(np.diag(L)).sum()
            W = 0.5 * (inverse - np.outer(alpha, alpha))
            gradient += (W * K).sum(), (W * K * D).sum() / lengthscale, noise * np.trace(W)
        return value, gradient

    found = optimize.minimize(
        loss, np.log([1.0, 0.5, 0.1]), jac=True, method="L-BFGS-B", bounds=[(-14, 7)] * 3
    )
    return np.exp(found.x)


def with_fvgp(field: Field, threads: int) -> Outcome:
    """One log-likelihood of gp2Scale with its own compactly supported kernel and settings."""
    import fvgp
    import imate  # noqa: F401  what gp2Scale needs besides
    from distributed import Client

    small = field.thinned(FVGP_ROWS)
    y = small.y - small.y.mean()
    first = np.array([y.var(), 1.05 * FVGP_RADIUS, 1.05 * FVGP_RADIUS])
    asked = np.array([y.var(), FVGP_RADIUS, FVGP_RADIUS])
    with Client(n_workers=threads, threads_per_worker=1, dashboard_address=None) as client:
        model = fvgp.GP(
            small.X,
            y,
            init_hyperparameters=first,
            noise_variances=np.full(len(y), 0.05 * y.var()),
            gp2Scale=True,
            gp2Scale_batch_size=max(1, len(y) // 4),
            dask_client=client,
        )
        began = time.perf_counter()
        value = float(np.ravel(model.log_likelihood(asked))[0])
        seconds = time.perf_counter() - began
        filled = model.prior.K.nnz / len(y) ** 2
    remark = f"one log-likelihood of {len(y):,} rows ({value:.6g}), {filled:.1%} non-zero"
    return Outcome(seconds, remark=remark)


METHODS: dict[str, Callable[[Field, int], Outcome]] = {
    "lma": lambda field, threads: with_daskgp("lma", field, threads),
    "lma-defaults": lambda field, threads: with_daskgp("lma-defaults", field, threads),
    "lma-kernel": lambda field, threads: with_daskgp("lma-kernel", field, threads),
    "pic": lambda field, threads: with_daskgp("pic", field, threads),
    "sgpr": lambda field, threads: with_daskgp("sgpr", field, threads),
    "gpboost": with_gpboost,
    "local": with_local,
    "fvgp": with_fvgp,
}


# -- measuring -------------------------------------------------------------------------------


def measure(name: str, path: Path, threads: int) -> dict:
    """Scores and seconds of one method, in this process."""
    field = Field.load(path)
    try:
        found = METHODS[name](field, threads)
    except ModuleNotFoundError as error:
        return {"remark": f"not installed ({error.name})"}
    return {
        **common.scores(field.y_test, found.mean, found.variance),
        "fit_s": found.fit_s,
        "predict_s": found.predict_s,
        "remark": found.remark,
    }


def apart(name: str, path: Path, threads: int) -> dict:
    """Run one method in a process of its own; what it printed, its seconds and its memory."""
    words = [sys.executable, __file__, f"--here={name}", f"--field={path}", f"--threads={threads}"]
    blas = 1 if name == "local" else threads  # threads only slow down matrices as small as those
    limits = {f"{library}_NUM_THREADS": str(blas) for library in ("OMP", "OPENBLAS", "MKL")}
    try:
        ran = common.run(words, environment=os.environ | limits)
    except RuntimeError as error:
        return {"method": name, "remark": f"failed: {error}"}
    found = ran.result
    if "fit_s" in found:
        found |= {"seconds": ran.seconds, "peak_mib": ran.peak_mib}
    return {"method": name, **found}


@click.command()
@click.option(
    "--methods", default=",".join(METHODS), show_default=True, callback=common.among(METHODS)
)
@click.option("--rows", type=click.IntRange(min=1), help="Training rows.  [default: all]")
@click.option("--threads", default=2, show_default=True, help="Threads, or workers of daskgp.")
@click.option("--here", type=click.Choice(list(METHODS)), hidden=True)
@click.option("--field", "path", type=Path, hidden=True)
def main(
    methods: list[str], rows: int | None, threads: int, here: str | None, path: Path | None
) -> None:
    """Measure each method in a process of its own and print a table."""
    if here and path:
        print(json.dumps(measure(here, path, threads)))
        return
    data = os.environ.get("DASKGP_DATA")
    if data:
        name, field = "satellite", satellite(Path(data, "spatial", "satellite.npz"))
    else:
        name, field = "generated", generated(rows or TRAIN_ROWS)
    field = field.thinned(rows or len(field.y))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "field.npz")
        field.save(store)
        for method in methods:
            results.append(apart(method, store, threads))
            print(json.dumps(results[-1]), flush=True)
    sizes = f"{len(field.y):,} rows, {len(field.y_test):,} places to predict"
    Console(width=180).print(common.report(results, f"{name}: {sizes}"))
    common.refuse_failures(results)


if __name__ == "__main__":
    main()
