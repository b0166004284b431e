"""Show how far predictions move if rows are put in another order, or cut in other chunks.

    python workflows/benchmarks/row_order.py --out results.jsonl [--methods a,b] [--tiny]
    python workflows/benchmarks/row_order.py --out results.jsonl --table

Every method has its default settings.  A Matérn-3/2 field on the unit square (``field``) and
Friedman's function of five of ten features (``table``), both with noise, are fitted as they are,
with their rows permuted (``order``), with another ``random_state`` (``seed``), and as Dask arrays
of 700 rows a chunk (``chunks``).  Numbers are differences between predictive means of f, relative
to its standard deviation: their root mean square over 1,000 places, and the largest.
"""

import dask.array as da
import datasets
import harness
import numpy as np

import daskgp

METHODS = {
    "exact": daskgp.ExactGP(),
    "sgpr": daskgp.SGPR(),
    "lma": daskgp.LMA(),
    "pic": daskgp.PIC(),
    "ssgp": daskgp.SparseSpectrumGP(),
    "opticom": daskgp.OptiComGP(),
    "experts": daskgp.ExpertsGP(),
    "exact-experts": daskgp.ExpertsGP(expert="exact"),
    "cagp": daskgp.CaGP(),
    "cagp-cg": daskgp.CaGP(actions="cg"),
    "cggp": daskgp.CGGP(),
    "svgp": daskgp.SVGP(),
    "decoupled": daskgp.DecoupledGP(),
}
DATA = ("field", "table")
FIELD = datasets.Truth("matern32", 0.2, 1.0, 0.1)
CHANGES = ("order", "chunks", "seed")
PLACES, CHUNK = 1_000, 700


def keys(options: harness.Options) -> harness.Keys:
    for key in harness.runs(options, "rows", data=options.data, method=options.methods):
        if not (key["method"] == "opticom" and key["data"] == "table"):  # of few features alone
            yield key


def measure(key: dict, options: harness.Options) -> dict:
    X, y, places = drawn(key["data"], key["rows"])
    size = min(CHUNK, key["rows"] // 4)
    base, spread = predicted(key["method"], X, y, places)
    line = np.random.default_rng(1).permutation(len(X))
    cut = da.from_array(X, chunks=(size, -1)), da.from_array(y, chunks=size)
    others = {
        "order": predicted(key["method"], X[line], y[line], places)[0],
        "chunks": predicted(key["method"], *cut, places)[0],
        "seed": predicted(key["method"], X, y, places, random_state=1)[0],
    }
    moved = {name: np.abs(mean - base) / spread for name, mean in others.items()}
    rms = {name: float(np.sqrt((far**2).mean())) for name, far in moved.items()}
    return rms | {f"{name}_most": float(far.max()) for name, far in moved.items()}


def drawn(data: str, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of a set, and places."""
    rng = np.random.default_rng(0)
    if data == "field":
        split = datasets.scattered(rows, datasets.uniform)(rng, FIELD, False)
        return split.X, split.y, split.X_test[:PLACES]
    X = rng.uniform(size=(rows + PLACES, 10))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y = f + 10 * X[:, 3] + 5 * X[:, 4] + rng.standard_normal(len(X))
    return X[:rows], y[:rows], X[rows:]


def predicted(
    method: str, X: object, y: object, places: np.ndarray, **settings: object
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of f at places and its standard deviations, or the noise where unknown."""
    model = METHODS[method]
    kept = model.get_params(deep=False)
    model.set_params(progress=False, **settings).fit(X, y)
    with_std = method != "cggp"
    found = model.predict(places, return_std=with_std)
    scale = model.solved_.scaling.y_scale[0]
    model.set_params(**kept)
    if with_std:
        return found
    return found, np.full(len(found), np.sqrt(model.noise_variance_) * scale)


def table(records: list[dict], options: harness.Options) -> str:
    numbers = " ".join(f"{change} {change}_most" for change in CHANGES)
    rows = []
    for record in records:
        cells = [harness.cell(record, name, ".0e") for name in numbers.split()]
        rows.append([record["key"]["method"], record["key"]["data"], *cells])
    heads = [head for change in CHANGES for head in (change, "at most")]
    return harness.markdown(["method", "data", *heads], rows)


harness.command(globals(), methods=tuple(METHODS), data=DATA, rows=(3_000, 200))
