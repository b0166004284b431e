"""Seconds and memory of a value and gradient, or of a step, beside other packages.

    python workflows/benchmarks/speed.py [--parts sgpr] [--methods daskgp,gpytorch]

A smooth function, Matérn-3/2 with a lengthscale per feature; daskgp's seconds are per evaluation,
or per step, of a short training.

- ``sgpr``: value and gradient of SGPR's bound by kernel, noise and inducing inputs, float64.
- ``cagp``: those of [CAGP] eq. 11 by kernel, noise and every entry of the sparse actions, float64.
  PyTorch computes blocks of rows again in the backward pass; the bounds are compared.
- ``svgp float64``, ``svgp float32``: a step of SVGP, in turn.  "daskgp adam" leaves q to Adam too,
  as GPyTorch does; daskgp's default takes natural gradients.

The floor is the operations of the method, kernels left out, at the rate of a large matrix product
of the same type measured in the same run; that of ``cagp`` is 2 n² kernel entries at the rate at
which ``kernel(X, Z, out=)`` fills the best of some shapes of tiles on all threads.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import datasets
import harness
import numpy as np
from peers import gpflow, gpytorch, torch
from threadpoolctl import threadpool_limits

import daskgp
from daskgp import kernels

SGPR = {"gpflow": gpflow.sgpr, "gpytorch": gpytorch.sgpr}
METHODS = ("daskgp", "daskgp adam", *SGPR, "torch")
PARTS = {"sgpr": ("daskgp", *SGPR), "cagp": ("daskgp", "torch")}
PARTS |= dict.fromkeys(("svgp float64", "svgp float32"), ("daskgp", "daskgp adam", "gpytorch"))
PLAIN = {"noise_variance": 0.1, "mean": "zero", "standardize": False, "progress": False}
MATERN = "matern32(ard=true)"
TILES = (64, 512), (256, 1_024), (512, 2_048), (2_048, 2_048)


def keys(options: harness.Options) -> harness.Keys:
    sizes = "rows features inducing actions batch_rows"
    for part in options.parts:
        methods = ["floor", *(m for m in PARTS[part] if m in options.methods)]
        runs = range(options.repeats if part.startswith("svgp") else 1)
        yield from harness.runs(options, sizes, part=[part], run=runs, method=methods)


def measure(key: dict, options: harness.Options) -> dict:
    kind, dtype = (*key["part"].split(), "float64")[:2]
    kernel = kernels.Matern32(lengthscale=(2.0,) * key["features"])
    if key["method"] == "floor":
        if kind == "cagp":
            return {"rate": max(tile_rate(kernel, shape, options) for shape in TILES)}
        return {"rate": harness.product_rate(256 if options.tiny else 4_096, dtype)}
    X, y = datasets.smooth(key["rows"], key["features"])
    if kind == "cagp":
        return cagp(X, y, kernel, key, options)
    Z = X[np.random.default_rng(1).choice(len(X), key["inducing"], replace=False)]
    if kind == "svgp":
        return {"run_s": svgp(X, y, Z, key, 10 + options.steps, dtype)}
    if key["method"] in SGPR:
        evaluate = SGPR[key["method"]](X, y, Z, kernel)
        seconds, bound = harness.best_of(options.evaluations, evaluate)
        return {"run_s": seconds, "objective": bound}
    training = {"train_inducing": True, "tol": 1e-12, "max_iter": options.evaluations + 1}
    model = daskgp.SGPR(kernel, inducing=Z, optimizer="l-bfgs", **training, **PLAIN).fit(X, y)
    bound = daskgp.SGPR(kernel, inducing=Z, optimizer=None, **PLAIN).fit(X, y).objective_
    return {"run_s": harness.evaluation_seconds(model), "objective": bound}


def cagp(X: np.ndarray, y: np.ndarray, kernel: kernels.Kernel, key: dict, options) -> dict:
    """Measure daskgp, and keep where that ended, or PyTorch there."""
    path, t = options.folder / f"cagp-{len(y)}-{key['actions']}.npz", key["actions"]
    if key["method"] == "torch":
        with np.load(path) as at:
            parts = (at[name] for name in ("weights", "owner", "logs", "log_noise"))
            evaluate, value = torch.cagp_bound(X, y, *parts), float(at["value"])
        seconds, (bound, _) = harness.best_of(options.evaluations, evaluate)
        return {"run_s": seconds, "objective": bound, "differs": abs(bound - value) / abs(value)}
    training = {"optimizer": "l-bfgs", "tol": 1e-12, "max_iter": options.evaluations + 1}
    model = daskgp.CaGP(kernel, n_actions=t, order=None, **training, **PLAIN).fit(X, y)
    weights, value = model.actions_.tocsr(), model.history_[-1]["objective"]
    owner, logs = weights.indices.astype(np.int64), model.kernel_.log_parameters
    ended = {"logs": logs, "log_noise": np.log(model.noise_variance_), "value": value}
    np.savez(path, weights=weights.data, owner=owner, **ended)
    return {"run_s": harness.evaluation_seconds(model), "objective": value}


def svgp(X: np.ndarray, y: np.ndarray, Z: np.ndarray, key: dict, steps: int, dtype: str) -> float:
    if key["method"] == "gpytorch":
        split = datasets.Split(X, y, X[:1], y[:1])
        model = gpytorch.random_svgp(split, MATERN, dtype, key["inducing"])
        return harness.step_seconds(list(model.steps(steps, key["batch_rows"])))["step_s"]
    own = {"inducing": Z, "batch_rows": key["batch_rows"], "max_iter": steps, "dtype": dtype}
    own["natural"] = 0.1 if key["method"] == "daskgp" else None
    model = daskgp.SVGP(MATERN, **own, device="cpu", progress=False).fit(X, y)
    return harness.step_seconds(harness.marks(model))["step_s"]


def tile_rate(kernel: kernels.Kernel, shape: tuple[int, int], options) -> float:
    """Return the kernel entries per second on all threads in tiles of a shape."""
    most = 0.1 if options.tiny else 2.0

    def fill(seed: int) -> float:
        rng = np.random.default_rng(seed)
        X, Z = (rng.standard_normal((size, options.features)) for size in shape)
        out, number, began = np.empty(shape), 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < most:
            kernel(X, Z, out=out)
            number += out.size
        return number / spent

    with threadpool_limits(1), ThreadPoolExecutor(options.threads) as pool:
        return sum(pool.map(fill, range(options.threads)))


def operations(part: str, method: str, n: int, m: int, batch: int) -> float:
    """Count what a method asks for, without what is zero or the same by symmetry.

    SGPR takes n m² each for whitening and the symmetric product, 2 n m² for the tile's cotangent;
    a step of SVGP n m² each for whitening, A T, that times T', the lower triangle of A_bar A', the
    gradient by T or by S, and unwhitening, and 5/3 m³ for the factors of K, the inverse of L and
    L^-T Phi L^-1; a natural gradient adds S^-1, the new factor and its inverse, 4/3 m³.
    """
    if part in ("cagp", "sgpr"):
        return 2 * n**2 if part == "cagp" else 4 * n * m**2
    return 6 * batch * m**2 + (9 if method == "daskgp" else 5) / 3 * m**3


def table(records: list[dict], options: harness.Options) -> str:
    shown, labels = [], ("part", "method", "rows", "inducing", "batch_rows")
    for runs in harness.grouped(records, "part").values():
        rate = max((run["rate"] for run in runs if "rate" in run), default=np.nan)
        rows = harness.medians((r for r in runs if "rate" not in r), *labels)
        ours = next((row for row in rows if row["key"]["method"] == "daskgp"), {})
        for row in (row for row in rows if "run_s" in row):
            row["floor_s"] = operations(*row["key"].values()) / rate
            row["over_floor"] = row["run_s"] / row["floor_s"]
            for name, part in (("over_ours", "run_s"), ("memory_over_ours", "peak_mib")):
                row[name] = row[part] / ours[part] if part in ours else None
        shown += rows
    numbers = "run_s over_ours peak_mib memory_over_ours floor_s over_floor objective differs runs"
    return harness.report(shown, "part method", numbers)


SIZES = {"rows": (36_000, 600), "features": (8, 3), "inducing": (1_024, 50), "actions": (512, 12)}
STEPS = {"batch_rows": (1_024, 100), "steps": (60, 3), "repeats": (2, 1), "evaluations": (3, 2)}
harness.command(globals(), parts=PARTS, methods=METHODS, **SIZES, **STEPS)
