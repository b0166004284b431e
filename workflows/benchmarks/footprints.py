"""Show what it is worth to know that measurements are averages over areas.

    python workflows/benchmarks/footprints.py --out results.jsonl [--methods a,b] [--tiny]
    python workflows/benchmarks/footprints.py --out results.jsonl --table

A Matérn-3/2 field is drawn on a fine grid, and its averages over the cells in discs of many sizes
are measured with noise, one row in five at a point.  ``dense`` is the exact model of the known
hyper-parameters with nodes of order 8; the others learn theirs, by the 16 nodes of order 4, and
``none`` takes all measurements for those of points.  RMSE and coverage are of new points and discs
without noise.
"""

import harness
import numpy as np
from scipy import fft

import daskgp
from daskgp import kernels

TRUTH = kernels.Matern32(1.0, 1.0)
SIDE, CELLS, NOISE, WIDEST = 10.0, 500, 0.01, 1.0
INDUCING, PLACES = 400, 1_000
"""Inducing inputs, and places to predict, half of them points."""


def told() -> daskgp.ExactGP:
    """Return the exact model that knows what the field was drawn with."""
    kernel = kernels.Averaged(TRUTH, footprint=2, order=8)
    return daskgp.ExactGP(kernel, noise_variance=NOISE, optimizer=None, standardize=False)


METHODS = {
    "dense": told,
    "exact": lambda: daskgp.ExactGP(kernels.Matern32(), footprint=2),
    "vecchia": lambda: daskgp.VecchiaGP(kernels.Matern32(), footprint=2),
    "sgpr": lambda: daskgp.SGPR(kernels.Matern32(), footprint=2),
    "none": lambda: daskgp.ExactGP(kernels.Matern32(active_dims=(0, 1))),
}


def keys(options: harness.Options) -> harness.Keys:
    yield from harness.runs(options, "rows", method=options.methods, seed=range(options.seeds))


def drawn(rng: np.random.Generator) -> np.ndarray:
    """Return a field on a grid of cells, drawn on a torus of twice its side."""
    step = SIDE / CELLS
    away = np.minimum(np.arange(2 * CELLS), np.arange(2 * CELLS, 0, -1)) * step
    X = np.stack(np.meshgrid(away, away, indexing="ij"), axis=-1).reshape(-1, 2)
    spectrum = fft.fft2(TRUTH(X, np.zeros((1, 2))).reshape(2 * CELLS, -1)).real
    waves = fft.fft2(np.sqrt(np.maximum(spectrum, 0.0)) * _normal(rng) / (2 * CELLS))
    return waves.real[:CELLS, :CELLS]


def _normal(rng: np.random.Generator) -> np.ndarray:
    shape = (2 * CELLS, 2 * CELLS)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def measured(
    field: np.ndarray, n: int, points: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of centres and radii, and the averages of the field over their cells."""
    step = SIDE / CELLS
    radius = np.where(rng.uniform(size=n) < points, 0.0, rng.uniform(0.2, WIDEST, n))
    reach = np.ceil(radius / step).astype(int)
    cells = rng.integers(reach[:, None], CELLS - reach[:, None], (n, 2))
    averages = np.empty(n)
    for i, ((row, column), k) in enumerate(zip(cells, reach, strict=True)):
        own = np.arange(-k, k + 1)
        inside = np.hypot(*np.meshgrid(own, own)) * step <= radius[i]
        averages[i] = field[row - k : row + k + 1, column - k : column + k + 1][inside].mean()
    return np.column_stack([step * cells, radius]), averages


def measure(key: dict, options: harness.Options) -> dict:
    rng = np.random.default_rng(key["seed"])
    field = drawn(rng)
    X, f = measured(field, key["rows"], 0.2, rng)
    T, wanted = measured(field, PLACES, 0.5, rng)
    model = METHODS[key["method"]]()
    if key["method"] == "sgpr":
        model.set_params(n_inducing=min(INDUCING, len(X)))
    model.set_params(progress=False).fit(X, f + np.sqrt(NOISE) * rng.standard_normal(len(f)))
    numbers = {}
    mean, std = model.predict(T, return_std=True)
    for what, rows in (("points", T[:, 2] == 0.0), ("discs", T[:, 2] > 0.0)):
        error = (mean - wanted)[rows]
        numbers[f"rmse_{what}"] = float(np.sqrt(np.mean(error**2)))
        numbers[f"coverage_{what}"] = float(np.mean(np.abs(error) <= 1.96 * std[rows]))
    lengths = [row.value for row in model.hyperparameters_ if row.name.startswith("lengthscale")]
    return {"n": len(X), "lengthscale": lengths[0], **numbers}


def table(records: list[dict], options: harness.Options) -> str:
    numbers = "rmse_points coverage_points rmse_discs coverage_discs lengthscale processor_s runs"
    return harness.report(harness.medians(records, "method"), "method", numbers)


harness.command(
    globals(),
    methods=harness.Some(tuple(METHODS), tuple(METHODS)),
    seeds=(5, 1),
    rows=(1_000, 150),
)
