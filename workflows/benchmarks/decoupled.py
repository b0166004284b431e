"""Decoupled variational GPs and SVGP: how well they predict, what a step costs and how it grows.

    [DASKGP_DATA=folder] python workflows/benchmarks/decoupled.py [--only speed,growth] [--curve]

Every fit and every contender runs in a process of its own; peaks of memory are resident memory
with imports and data.  Results are printed as lines of JSON when they are there, then as tables.
Fits by mini-batches make ``--steps`` steps of ``--batch-rows`` rows.  [DGP] = Cheng & Boots 2017.

``data``: scores of standardised targets, noise included.  With DASKGP_DATA, a folder that holds
``uci/kin40k.npz`` and others (X, y, test_mask; split 0 is used; columns that are constant among the
training rows are left out), whose rows are in memory, and
``spatial/ghcn_hcn_daily_2008_2017.npz`` (see ``million.py``): latitude, longitude, elevation and
day of a million daily maxima drawn at random, which are read from a Zarr store, and of 100,000
others to predict.  ``--waves`` adds the waves of the year, without which a kernel that starts from
long lengthscales may not find the seasons.  Without the folder ``ghcn`` is a generated network.

- ``decoupled``, ``svgp``: ``DecoupledGP`` with 16,384 and 128 functions, ``SVGP`` with 1,024.  On
  request ``decoupled-bound`` and ``svgp-subset``, which exchange where their hyper-parameters come
  from: the evidence of a subset of rows, or the bound.
- ``ivsgpr``: the incremental variational sparse GP of [DGP] section 5 with 256 inducing inputs,
  whose mirror ascent is the natural gradient of ``SVGP``.
- ``vsgpr``, ``gpr``: ``SGPR`` with 1,024 trained inducing inputs on 4,096 rows drawn at random,
  and ``ExactGP`` on 1,024, both in float64 by at most 100 iterations of L-BFGS.
- ``gpytorch``: GPyTorch's SVGP with 1,024 learned inducing inputs that begin at random rows, by
  Adam at 0.01 from the hyper-parameters that daskgp starts from, with all rows in memory.

``--curve`` scores those with as many functions every 100 steps besides.  Seconds are those of the
fit so far, with what comes before the first step and without scoring.

``speed``: one step of SVGP beside GPyTorch's, in turn.  "daskgp adam" leaves q to Adam too, as
GPyTorch does, where daskgp's default takes natural gradients.  The floor is the operations of a
step, kernels left out, at the rate of a large matrix product of the same type.

``growth``: seconds of a step of ``DecoupledGP`` against its functions of the mean, once all are
there.  The mean has, and the median has not, the factors that are made anew every 50 steps.
``--whole`` steps learn the kernel and move all functions too.

``reading``: the same fits with rows in memory and in a Zarr store, in turn.

``likelihoods``: mean log predictive density of classes, a field above or below its median, and of
counts whose log rate is linear in it, beside generalised linear models on squares and products of
longitude and latitude; with DASKGP_DATA the field is ``spatial/satellite.npz`` of ``spatial.py``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import common
import million
import numpy as np
import scipy.stats
import spatial
from cagp import collect, read_split, table_of
from rich.console import Console
from rich.table import Table
from sgpr import problem
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import daskgp
from daskgp import kernels, metrics
from daskgp.data import dataset_writer
from daskgp.kernels import lengthscales

PARTS = ("data", "speed", "growth", "reading", "likelihoods")
SETS = ("kin40k", "protein", "keggdirected", "ghcn")
GHCN_ROWS, TEST_SHARE = 1_000_000, 0.1
PLACE = ("lon", "lat", "elevation", "day")
STEPPED = ("daskgp", "daskgp adam", "gpytorch")
"""Contenders of ``speed``; their natural gradients are those of the first alone."""
TARGETS = ("bernoulli", "poisson")
FIELD_METHODS = ("svgp", "decoupled", "glm")
FIELD_FUNCTIONS: dict[str, dict[str, int]] = {
    "svgp": {"n_inducing": 512},
    "decoupled": {"n_mean": 4_096, "n_covariance": 128},
}
DTYPES = ("float64", "float32")
MATERN = "matern32(ard=true)"
SUBSET = {"n_subset": 256}
"""Where steps alone are measured."""
SAMPLE, SCORED, WARM = 2_000, 4_096, 10
"""Rows that lengthscales start from, rows that GPyTorch predicts at a time, steps that are not
measured."""
COUNT, SLOPE = 3.0, 0.5
"""Mean count, and what multiplies the standardised field in the log of its rate."""
RATE, NOISE, MOST_JITTER = 0.01, 0.1, 0.1
"""GPyTorch's: rate of Adam, noise to start from, and the jitter at which it gives up."""
NO_GPYTORCH = "GPyTorch is not installed, nothing to compare with: pip install 'daskgp[bench]'"


class Method(NamedTuple):
    """An estimator with its settings and, if it cannot take all rows, how many it takes."""

    kind: Callable[..., Any]
    settings: dict[str, Any]
    rows: int | None = None

    def having(self, **more: Any) -> Method:
        """The same with more settings."""
        return self._replace(settings={**self.settings, **more})


METHODS: dict[str, Method] = {
    "decoupled": Method(daskgp.DecoupledGP, {"n_mean": 16_384, "n_covariance": 128}),
    "svgp": Method(daskgp.SVGP, {"n_inducing": 1_024}),
    "ivsgpr": Method(daskgp.SVGP, {"n_inducing": 256, "natural": 0.1}),
    "vsgpr": Method(daskgp.SGPR, {"n_inducing": 1_024, "train_inducing": True}, 4_096),
    "gpr": Method(daskgp.ExactGP, {}, 1_024),
}
EXTRA = {
    "decoupled-bound": METHODS["decoupled"].having(hyperparameters="bound"),
    "svgp-subset": METHODS["svgp"].having(hyperparameters="subset"),
}
"""On request."""
CONTENDERS = (*METHODS, "gpytorch")
MARKED = ("decoupled", "svgp", "gpytorch", *EXTRA)
"""Contenders with a curve."""
FUNCTIONS = ("n_mean", "n_covariance", "n_inducing")
"""Settings that a tiny run lowers to half of its rows."""
FULL_ITERATIONS, GPYTORCH_INDUCING = 100, 1_024


def apart(task: str, **arguments: Any) -> dict[str, Any]:
    """What a task finds in a process of its own, with its peak memory; a remark where it fails."""
    words = [sys.executable, __file__, "--here", json.dumps([task, arguments])]
    try:
        ran = common.run(words)
    except RuntimeError as error:
        return {"remark": f"failed: {error}"}
    return {**ran.result, "peak_mib": ran.peak_mib}


def apart_gpytorch(task: str, **arguments: Any) -> dict[str, Any]:
    """The same where GPyTorch is needed."""
    if importlib.util.find_spec("gpytorch") is None:
        return {"remark": NO_GPYTORCH}
    return apart(task, **arguments)


def step_seconds(marks: Sequence[float], warm: int = WARM) -> np.ndarray:
    """Seconds of the steps of a run after the first ones, from the seconds at their ends."""
    steps = np.diff([0.0, *marks])
    return steps[min(warm, len(steps) - 1) :]


def marks_of(model: Any) -> list[float]:
    """Seconds at the ends of an estimator's steps."""
    return [entry["seconds"] for entry in model.history_]


def lowered(settings: dict[str, Any], rows: int) -> dict[str, Any]:
    """Settings with no more functions than half of the rows."""
    return {k: min(v, rows // 2) if k in FUNCTIONS else v for k, v in settings.items()}


# -- GPyTorch --------------------------------------------------------------------------------


class Gpytorch:
    """GPyTorch's SVGP on rows in memory, X (n, d) standardised, from a kernel of daskgp's.

    ``steps`` trains; the seconds that it gives are those of its steps alone.
    """

    def __init__(
        self,
        X: np.ndarray,
        y: np.ndarray,
        Z: np.ndarray,
        kernel: kernels.Kernel,
        dtype: str,
        jitter: float,
    ) -> None:
        import gpytorch
        import torch

        self.dtype: Any = getattr(torch, dtype)
        self.X, self.y = (torch.tensor(part, dtype=self.dtype) for part in (X, y))
        covariance = _in_gpytorch(kernel)

        class Model(gpytorch.models.ApproximateGP):
            def __init__(self) -> None:
                q = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
                strategy = gpytorch.variational.VariationalStrategy(
                    self, torch.tensor(Z), q, learn_inducing_locations=True, jitter_val=jitter
                )
                super().__init__(strategy)
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = covariance

            def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
                return gpytorch.distributions.MultivariateNormal(
                    self.mean_module(x), self.covar_module(x)
                )

        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.likelihood.noise = NOISE
        self.model, self.likelihood = Model().to(self.dtype), self.likelihood.to(self.dtype)

    def steps(self, number: int, batch: int) -> Iterator[float]:
        """Train; the seconds so far after each step."""
        import gpytorch
        import torch

        torch.manual_seed(0)
        learned = [*self.model.parameters(), *self.likelihood.parameters()]
        optimizer = torch.optim.Adam(learned, lr=RATE)
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=len(self.y))
        order, place, seconds = torch.randperm(len(self.y)), 0, 0.0
        for _ in range(number):
            self.model.train()
            self.likelihood.train()
            began = time.perf_counter()
            if place >= len(order):
                order, place = torch.randperm(len(self.y)), 0
            rows, place = order[place : place + batch], place + batch
            optimizer.zero_grad()
            loss = -bound(self.model(self.X[rows]), self.y[rows])
            loss.backward()
            optimizer.step()
            seconds += time.perf_counter() - began
            yield seconds

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (n,) of y."""
        import torch

        self.model.eval()
        self.likelihood.eval()
        parts = []
        with torch.no_grad():
            for start in range(0, len(X), SCORED):
                x = torch.tensor(X[start : start + SCORED], dtype=self.dtype)
                found = self.likelihood(self.model(x))
                parts.append((found.mean.double().numpy(), found.stddev.double().numpy()))
        mean, std = map(np.concatenate, zip(*parts, strict=True))
        return mean, std


def _in_gpytorch(kernel: kernels.Kernel) -> Any:
    """A kernel of GPyTorch's with the same values."""
    import gpytorch
    import torch

    smoothness = {kernels.Matern12: 0.5, kernels.Matern32: 1.5, kernels.Matern52: 2.5}
    if type(kernel) not in (kernels.RBF, *smoothness):
        raise ValueError(f"{kernel!r} is not compared with GPyTorch: choose rbf or a matern")
    scale: Any = kernel.lengthscale  # type: ignore[attr-defined]
    several = {"ard_num_dims": len(scale)} if isinstance(scale, tuple) else {}
    base: Any = (
        gpytorch.kernels.RBFKernel(**several)
        if isinstance(kernel, kernels.RBF)
        else gpytorch.kernels.MaternKernel(nu=smoothness[type(kernel)], **several)
    )
    base.lengthscale = torch.tensor(scale)
    found = gpytorch.kernels.ScaleKernel(base)
    found.outputscale = kernel.variance  # type: ignore[attr-defined]
    return found


def starting(text: str, X: np.ndarray) -> kernels.Kernel:
    """The kernel with lengthscales that daskgp starts from on standardised rows like X."""
    rng = np.random.default_rng(0)
    sample = X[rng.choice(len(X), min(SAMPLE, len(X)), replace=False)]
    median = lengthscales.median_distances(sample)
    return kernels.parse(text).resolve(median.per_column * X.shape[1] ** 0.5, median.euclidean)


# -- data ------------------------------------------------------------------------------------


class Data(NamedTuple):
    """Rows to train on, in memory or lazily from a store, and rows to test on, in memory."""

    X: Any
    y: Any
    X_test: np.ndarray
    y_test: np.ndarray

    @classmethod
    def load(cls, folder: Path) -> Data:
        """What ``prepare`` wrote."""
        test, store = np.load(folder / "test.npz"), folder / "train.zarr"
        if store.exists():
            return cls(*daskgp.open_dataset(str(store)), test["X"], test["y"])
        train = np.load(folder / "train.npz")
        return cls(train["X"], train["y"], test["X"], test["y"])

    def drawn(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """So many rows at random, or all, in memory."""
        rng, n = np.random.default_rng(0), len(self.y)
        few = np.sort(rng.choice(n, min(rows, n), replace=False))
        return np.asarray(self.X[few]), np.asarray(self.y[few])


def prepare(name: str, folder: Path, options: dict[str, Any]) -> None:
    """Write the rows of a data set for the contenders."""
    if name == "ghcn":
        prepare_ghcn(folder, options)
        return
    split = read_split(name, options["limit"])
    np.savez(folder / "train.npz", X=split.X, y=split.y)
    np.savez(folder / "test.npz", X=split.X_test, y=split.y_test)


def prepare_ghcn(folder: Path, options: dict[str, Any]) -> None:
    """Values of the network drawn at random, those to train on in a store."""
    data, days = os.environ.get("DASKGP_DATA"), int(np.ceil(million.YEAR * options["years"]))
    network = (
        million.ghcn(Path(data, "spatial", "ghcn_hcn_daily_2008_2017.npz"), days)
        if data
        else million.generated(options["stations"], days)
    )
    station, day = np.nonzero(np.isfinite(network.values))
    rows = min(options["limit"] or GHCN_ROWS, int(len(day) / (1 + TEST_SHARE)))
    drawn = np.random.default_rng(0).permutation(len(day))[: int((1 + TEST_SHARE) * rows)]
    station, day = station[drawn], day[drawn]
    columns = network.features()
    names = [name for name in columns if options["waves"] or name in PLACE]
    at = {"station": station, "day": day}
    X = np.column_stack([values[at[along]] for along, values in map(columns.__getitem__, names)])
    y = network.values[station, day]
    y = (y - y[:rows].mean()) / y[:rows].std()
    order = np.argsort(day[:rows], kind="stable") if options["by_day"] else np.arange(rows)
    store, chunk = str(folder / "train.zarr"), options["chunk"]
    with dataset_writer(store, names, ("tmax",), chunk) as writer:
        for start in range(0, rows, chunk):
            few = order[start : start + chunk]
            writer.append(X[few], y[few])
    np.savez(folder / "test.npz", X=X[rows:], y=y[rows:])


def measure_fit(folder: str, contender: str, options: dict[str, Any]) -> dict[str, Any]:
    """Scores, seconds and, if asked for, the curve of one contender on one data set."""
    data = Data.load(Path(folder))
    every = options["curve_every"] if options["curve"] and contender in MARKED else None
    found = (
        fit_gpytorch(data, options, every)
        if contender == "gpytorch"
        else fit_daskgp(data, (METHODS | EXTRA)[contender], options, every)
    )
    return {"rows": len(data.y), "features": data.X.shape[1], **found}


def fit_daskgp(
    data: Data, method: Method, options: dict[str, Any], every: int | None
) -> dict[str, Any]:
    """Fit an estimator; for the curve again and again from where the checkpoint is."""
    X, y, X_test = data.X, data.y, data.X_test
    if method.rows is not None:
        X, y = data.drawn(method.rows)
        varies = np.ptp(X, axis=0) > 0  # a column may be constant among few rows
        X, X_test = X[:, varies], X_test[:, varies]
    settings = {"kernel": options["kernel"], "progress": False, **lowered(method.settings, len(y))}
    if method.rows is None:
        training = {"batch_rows": min(options["batch_rows"], len(y)), "dtype": options["dtype"]}
        steps = options["steps"]
    else:
        training, steps = {}, min(FULL_ITERATIONS, options["steps"])
    settings |= training

    def fit(steps: int, checkpoint: str | None) -> tuple[Any, float]:
        model, began = method.kind(**settings, max_iter=steps), time.perf_counter()
        model.fit(X, y, checkpoint=checkpoint)
        return model, time.perf_counter() - began

    curve: list[tuple[int, float, float]] = []
    setup: float | None = None
    if every is None:
        model, fit_s = fit(steps, None)
        setup = fit_s - marks_of(model)[-1]
    else:
        with tempfile.TemporaryDirectory() as kept:
            for number in points_of(steps, every):
                model, seconds = fit(number, str(Path(kept, "run")))
                trained = marks_of(model)[-1]
                setup = seconds - trained if setup is None else setup
                fit_s = setup + trained
                curve.append((number, fit_s, metrics.nmse(data.y_test, model.predict(X_test))))
    began = time.perf_counter()
    mean, std = model.predict(X_test, return_std=True, include_noise=True)
    step = {} if method.rows else {"step_s": float(np.median(step_seconds(marks_of(model))))}
    return {
        **scores(data.y_test, mean, std),
        "fit_s": fit_s,
        "setup_s": setup,
        "predict_s": time.perf_counter() - began,
        **step,
        "iterations": len(model.history_),
        "used": len(y),
        "noise": model.noise_variance_,
        "kernel": repr(model.kernel_),
        "curve": curve,
    }


def fit_gpytorch(data: Data, options: dict[str, Any], every: int | None) -> dict[str, Any]:
    """Train GPyTorch's SVGP, once more with more jitter where that fails."""
    from linear_operator.utils.errors import NanError, NotPSDError

    jitter = {"float32": 1e-4, "float64": 1e-6}[options["dtype"]]
    remark: dict[str, str] = {}
    while True:
        try:
            return _fit_gpytorch(data, options, every, jitter) | remark
        except (NanError, NotPSDError, ValueError) as error:
            jitter *= 10
            if jitter > 1.01 * MOST_JITTER:
                raise
            remark = {"remark": f"jitter {jitter:.0e} after {type(error).__name__}"}


def _fit_gpytorch(
    data: Data, options: dict[str, Any], every: int | None, jitter: float
) -> dict[str, Any]:
    began = time.perf_counter()
    X, y = np.asarray(data.X), np.asarray(data.y)
    shift, scale = X.mean(axis=0), X.std(axis=0)
    X, X_test = (X - shift) / scale, (data.X_test - shift) / scale
    Z, _ = data.drawn(min(GPYTORCH_INDUCING, len(y) // 2))
    kernel = starting(options["kernel"], X)
    model = Gpytorch(X, y, (Z - shift) / scale, kernel, options["dtype"], jitter)
    setup = time.perf_counter() - began
    marks: list[float] = []
    curve = []
    wanted = points_of(options["steps"], every) if every else []
    for seconds in model.steps(options["steps"], options["batch_rows"]):
        marks.append(seconds)
        if len(marks) in wanted:
            mean, _ = model.predict(X_test)
            curve.append((len(marks), setup + seconds, metrics.nmse(data.y_test, mean)))
    began = time.perf_counter()
    mean, std = model.predict(X_test)
    return {
        **scores(data.y_test, mean, std),
        "fit_s": setup + marks[-1],
        "setup_s": setup,
        "predict_s": time.perf_counter() - began,
        "step_s": float(np.median(step_seconds(marks))),
        "iterations": len(marks),
        "used": len(y),
        "noise": model.likelihood.noise.item(),
        "curve": curve,
    }


def points_of(steps: int, every: int) -> list[int]:
    """Numbers of steps at which a run is scored; its end is one."""
    return sorted({*range(every, steps, every), steps})


def scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Of a prediction of y with its noise."""
    return {
        "nmse": metrics.nmse(y, mean),
        "nlpd": metrics.nlpd(y, mean, std**2),
        "coverage": metrics.coverage(y, mean, std**2, level=0.95),
    }


def measure_data(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a data set and contender."""
    for name in options["sets"]:
        with tempfile.TemporaryDirectory() as folder:
            prepare(name, Path(folder), options)
            for contender in options["contenders"]:
                run = apart_gpytorch if contender == "gpytorch" else apart
                found = run("fit", folder=folder, contender=contender, options=options)
                yield {"data": name, "method": contender, **found}


def data_table(rows: Sequence[dict], options: dict[str, Any]) -> Table:
    """Scores and seconds."""
    columns = {
        "data": ("data", ""),
        "method": ("", ""),
        "rows": ("rows", ",d"),
        "used": ("used", ",d"),
        "nmse": ("nMSE", ".4f"),
        "nlpd": ("NLPD", ".3f"),
        "coverage": ("coverage", ".3f"),
        "fit_s": ("fit s", ".1f"),
        "setup_s": ("of it first", ".1f"),
        "step_s": ("s a step", ".3f"),
        "iterations": ("iterations", "d"),
        "predict_s": ("predict s", ".1f"),
        "peak_mib": ("peak MiB", ",.0f"),
    }
    batch, dtype = options["batch_rows"], options["dtype"]
    title = f"{options['kernel']}, {options['steps']:,} steps of {batch:,} rows, {dtype}"
    return table_of(title, columns, rows)


def curve_tables(rows: Sequence[dict]) -> Iterator[Table]:
    """Errors against steps, with the seconds so far, a table a data set."""
    for name in dict.fromkeys(row["data"] for row in rows):
        curves = {r["method"]: r["curve"] for r in rows if r["data"] == name and r.get("curve")}
        table = Table(title=f"{name}: nMSE (seconds) after so many steps")
        for heading in ("steps", *curves):
            table.add_column(heading, justify="right")
        for number in sorted({point[0] for curve in curves.values() for point in curve}):
            at = ({steps: rest for steps, *rest in curve}.get(number) for curve in curves.values())
            cells = ("–" if found is None else f"{found[1]:.4f} ({found[0]:.1f})" for found in at)
            table.add_row(f"{number:,}", *cells)
        if curves:
            yield table


# -- speed -----------------------------------------------------------------------------------


def measure_steps(method: str, dtype: str, options: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of a step of SVGP."""
    X, y, Z = problem(options["rows"], options["features"], options["inducing"])
    batch, number = options["batch_rows"], WARM + (options["measured"] or 60)
    if method == "gpytorch":
        jitter = {"float32": 1e-4, "float64": 1e-6}[dtype]
        theirs = Gpytorch(X, y, Z, starting(MATERN, X), dtype, jitter)
        marks = list(theirs.steps(number, batch))
    else:
        ours = daskgp.SVGP(
            MATERN,
            inducing=Z,
            batch_rows=batch,
            natural=0.1 if method == "daskgp" else None,
            max_iter=number,
            dtype=dtype,
            device="cpu",
            progress=False,
        )
        marks = marks_of(ours.fit(X, y))
    seconds = step_seconds(marks)
    return {"step_s": float(np.median(seconds)), "quartile_s": float(np.quantile(seconds, 0.25))}


def measure_rate(dtype: str, size: int) -> dict[str, Any]:
    """Operations a second of a matrix product on all cores, the best of some."""
    A = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        A @ A
        seconds.append(time.perf_counter() - began)
    return {"rate": 2 * size**3 / min(seconds)}


def operations(rows: int, inducing: int, natural: bool) -> float:
    """Of a step, where products leave out what is known to be zero or the same by symmetry.

    A batch takes n m^2 each for whitening, A T, that times T', the lower triangle of A_bar A',
    the gradient by T or by S, and unwhitening.  The factors of K, the inverse of L, and the
    products L^-T Phi L^-1 take 5/3 m^3.  A natural gradient adds S^-1, the factor of the new one
    and its inverse, 4/3 m^3.
    """
    return 6 * rows * inducing**2 + (9 if natural else 5) / 3 * inducing**3


def measure_speed(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a run, contenders in turn, between two of the rate of the type."""
    for dtype in options["dtypes"]:
        product = {"method": "matrix product", "dtype": dtype}
        yield {**product, **apart("rate", dtype=dtype, size=options["gemm"])}
        for number in range(options["repeats"]):
            for method in options["stepped"]:
                run = apart_gpytorch if method == "gpytorch" else apart
                found = run("steps", method=method, dtype=dtype, options=options)
                yield {"method": method, "dtype": dtype, "run": number, **found}
        yield {**product, **apart("rate", dtype=dtype, size=options["gemm"])}


def speed_table(rows: Sequence[dict], options: dict[str, Any]) -> Table:
    """Medians over the runs, as ratios to daskgp and to the floor."""
    shown = []
    for dtype in options["dtypes"]:
        here = [row for row in rows if row["dtype"] == dtype]
        rate = max((row["rate"] for row in here if "rate" in row), default=None)
        ours = _median(here, "daskgp", "step_s")
        for method in options["stepped"]:
            step = _median(here, method, "step_s")
            row: dict[str, Any] = {"dtype": dtype, "method": method, "step_s": step}
            remarks = [r["remark"] for r in here if r["method"] == method and "remark" in r]
            if remarks or step is None:
                shown.append({**row, "remark": "; ".join(dict.fromkeys(remarks))})
                continue
            row |= {
                "runs": " ".join(f"{r['step_s']:.3f}" for r in here if r["method"] == method),
                "peak_mib": _median(here, method, "peak_mib"),
            }
            if ours is not None:
                row["ratio"] = step / ours
            if rate is not None:
                work = operations(options["batch_rows"], options["inducing"], method == "daskgp")
                row |= {"gflops": rate / 1e9, "floor_s": work / rate}
                row["over_floor"] = step / row["floor_s"]
            shown.append(row)
    columns = {
        "dtype": ("", ""),
        "method": ("", ""),
        "step_s": ("s a step", ".4f"),
        "runs": ("runs", ">s"),
        "ratio": ("× daskgp", ".2f"),
        "gflops": ("GEMM GFLOP/s", ".0f"),
        "floor_s": ("floor s", ".4f"),
        "over_floor": ("× floor", ".2f"),
        "peak_mib": ("peak MiB", ",.0f"),
    }
    sizes = f"{options['inducing']:,} inducing inputs, {options['batch_rows']:,} rows"
    title = f"A step of SVGP, {sizes} of {options['rows']:,}, d = {options['features']}, {MATERN}"
    return table_of(title, columns, shown)


def _median(rows: Sequence[dict], method: str, key: str) -> float | None:
    found = [row[key] for row in rows if row["method"] == method and key in row]
    return float(np.median(found)) if found else None


# -- growth ----------------------------------------------------------------------------------


def measure_size(n_mean: int, dtype: str, options: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a step once all functions are there.

    A step adds half as many functions as a batch has rows, which even a small batch can give.
    """
    X, y, _ = problem(options["growth_rows"], options["features"], 1)
    batch, few = options["batch_rows"], min(options["n_covariance"], n_mean // 2)
    added = max(1, batch // 2)
    filling = -(-(n_mean - few) // added)
    whole = {"hyperparameters": "bound", "train_mean_points": True}
    model = daskgp.DecoupledGP(
        MATERN,
        n_mean=n_mean,
        n_covariance=few,
        n_added=added,
        batch_rows=batch,
        max_iter=filling + WARM + (options["measured"] or 50),
        dtype=dtype,
        progress=False,
        **(whole if options["whole"] else SUBSET),
    )
    began = time.perf_counter()
    marks = marks_of(model.fit(X, y))
    if len(model.mean_points_) != n_mean:
        raise RuntimeError(f"{len(model.mean_points_)} functions instead of {n_mean}")
    seconds = step_seconds(marks, filling + WARM)
    return {
        "step_s": float(np.median(seconds)),
        "mean_s": float(np.mean(seconds)),
        "steps": len(seconds),
        "filling_s": marks[filling - 1],
        "fit_s": time.perf_counter() - began,
    }


def measure_growth(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a type and number of functions."""
    for dtype in options["dtypes"]:
        for n_mean in sorted(options["sizes"]):
            row = {"method": f"{n_mean:,} {dtype}", "dtype": dtype, "n_mean": n_mean}
            yield {**row, **apart("size", n_mean=n_mean, dtype=dtype, options=options)}


def growth_table(rows: Sequence[dict], options: dict[str, Any]) -> Table:
    """Seconds against functions of the mean."""
    columns = {
        "dtype": ("", ""),
        "n_mean": ("functions", ",d"),
        "step_s": ("median s a step", ".4f"),
        "mean_s": ("mean", ".4f"),
        "steps": ("of steps", "d"),
        "filling_s": ("s until all are there", ".1f"),
        "peak_mib": ("peak MiB", ",.0f"),
    }
    few, batch = options["n_covariance"], options["batch_rows"]
    learned = "all learned" if options["whole"] else "kernel of a subset"
    title = f"DecoupledGP, {few} functions of the covariance, {batch:,} rows a step, {learned}"
    return table_of(title, columns, rows)


def slopes(rows: Sequence[dict]) -> Iterator[str]:
    """How seconds grow with the functions of the mean, a line a type."""
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        ran = [row for row in rows if row["dtype"] == dtype and "step_s" in row]
        if len(ran) > 1:
            sizes = np.log([row["n_mean"] for row in ran])
            median, mean = (
                np.polyfit(sizes, np.log([row[key] for row in ran]), 1)[0]
                for key in ("step_s", "mean_s")
            )
            yield f"{dtype}: log-log slope of the median {median:.3f}, of the mean {mean:.3f}"


# -- reading ---------------------------------------------------------------------------------

READERS: dict[str, Method] = {
    "svgp": Method(daskgp.SVGP, {"n_inducing": 1_024}),
    "decoupled": Method(daskgp.DecoupledGP, {"n_mean": 4_096, "n_covariance": 128}),
}


def write(path: Path, rows: int, features: int, chunk: int) -> None:
    """A seeded dataset, written chunk by chunk."""
    names = tuple(f"x{j}" for j in range(features))
    with dataset_writer(str(path), names, ("y",), chunk) as writer:
        for start in range(0, rows, chunk):
            rng = np.random.default_rng(start)
            X = rng.standard_normal((min(chunk, rows - start), features))
            signal = np.sin(X @ np.linspace(1, 0.2, features))
            writer.append(X, signal + NOISE**0.5 * rng.standard_normal(len(X)))


def measure_reading(
    path: str, method: str, in_memory: bool, options: dict[str, Any]
) -> dict[str, Any]:
    """Mean seconds of the steps of a fit, and the seconds before the first."""
    X, y = daskgp.open_dataset(path)
    if in_memory:
        X, y = np.asarray(X), np.asarray(y)
    kind, settings, _ = READERS[method]
    model = kind(
        MATERN,
        **lowered(settings, len(y)),
        batch_rows=options["batch_rows"],
        block_rows=options["chunk"],
        max_iter=WARM + options["reading_steps"],
        dtype=options["dtype"],
        progress=False,
    )
    began = time.perf_counter()
    model.fit(X, y)
    fit_s, marks = time.perf_counter() - began, marks_of(model)
    steps = step_seconds(marks)
    return {
        "mean_s": float(np.mean(steps)),
        "median_s": float(np.median(steps)),
        "setup_s": fit_s - marks[-1],
        "objective": model.objective_,
    }


def measure_readers(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a run, memory and store in turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.zarr")
        write(path, options["store_rows"], options["features"], options["chunk"])
        for method in READERS:
            for number in range(options["repeats"]):
                for where in ("memory", "store"):
                    in_memory = where == "memory"
                    found = apart(
                        "reading",
                        path=str(path),
                        method=method,
                        in_memory=in_memory,
                        options=options,
                    )
                    yield {"method": method, "where": where, "run": number, **found}


def reading_table(rows: Sequence[dict], options: dict[str, Any]) -> Table:
    """Medians over the runs, and the share of a step from a store that reading costs."""
    shown = []
    for method in dict.fromkeys(row["method"] for row in rows):
        ran = [row for row in rows if row["method"] == method and "mean_s" in row]
        both: dict[str, float | None] = {}
        for where in ("memory", "store"):
            here = [row for row in ran if row["where"] == where]
            both[where] = _median(here, method, "mean_s")
            keys = ("mean_s", "median_s", "setup_s", "peak_mib")
            row: dict[str, Any] = {key: _median(here, method, key) for key in keys}
            row |= {"method": method, "where": where}
            row["runs"] = " ".join(f"{r['mean_s']:.4f}" for r in here)
            memory, store = both.get("memory"), both.get("store")
            if memory is not None and store is not None:
                row["share"] = 1 - memory / store
            shown.append(row)
        if len({row["objective"] for row in ran}) > 1:
            shown[-1]["remark"] = "other numbers than from memory"
    columns = {
        "method": ("", ""),
        "where": ("rows in", ""),
        "mean_s": ("mean s a step", ".4f"),
        "runs": ("runs", ">s"),
        "median_s": ("median", ".4f"),
        "share": ("share of reading", ".1%"),
        "setup_s": ("s before the first", ".1f"),
        "peak_mib": ("peak MiB", ",.0f"),
    }
    n, chunk = options["store_rows"], options["chunk"]
    title = f"{n:,} rows x {options['features']} in chunks of {chunk:,}, {options['dtype']}"
    return table_of(title, columns, shown)


# -- likelihoods -----------------------------------------------------------------------------


def prepare_field(path: Path, limit: int | None) -> spatial.Field:
    """The field, thinned if asked to, saved with its classes and counts."""
    data = os.environ.get("DASKGP_DATA")
    field = (
        spatial.satellite(Path(data, "spatial", "satellite.npz"))
        if data
        else spatial.generated(limit or spatial.TRAIN_ROWS)
    )
    field = field.thinned(limit or len(field.y))
    rng, middle = np.random.default_rng(0), np.median(field.y)
    z, z_test = ((y - field.y.mean()) / field.y.std() for y in (field.y, field.y_test))
    level = np.log(COUNT / np.exp(SLOPE * z).mean())
    rate_test = np.exp(level + SLOPE * z_test)
    np.savez(
        path,
        X=field.X,
        X_test=field.X_test,
        bernoulli=(field.y > middle).astype(float),
        bernoulli_test=(field.y_test > middle).astype(float),
        poisson=rng.poisson(np.exp(level + SLOPE * z)).astype(float),
        poisson_test=rng.poisson(rate_test).astype(float),
        rate_test=rate_test,
    )
    return field


def measure_target(path: str, target: str, method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Mean log predictive density and seconds of one method."""
    stored = np.load(path)
    X, y, X_test, y_test = (stored[name] for name in ("X", target, "X_test", f"{target}_test"))
    began = time.perf_counter()
    if method == "glm":
        density = glm_density(X, y, X_test, y_test, target)
        found: dict[str, Any] = {}
        fit_s = time.perf_counter() - began
    else:
        kind = METHODS[method].kind
        model = kind(
            options["field_kernel"],
            **lowered(FIELD_FUNCTIONS[method], len(y)),
            likelihood=target,
            batch_rows=min(options["batch_rows"], len(y)),
            max_iter=options["steps"],
            dtype=options["dtype"],
            progress=False,
        ).fit(X, y)
        fit_s = time.perf_counter() - began
        mean, std = model.predict(X_test, return_std=True)
        density = -metrics.nlpd(y_test, mean, std**2, model.likelihood_)
        step = float(np.median(step_seconds(marks_of(model))))
        found = {"iterations": len(model.history_), "step_s": step, "kernel": repr(model.kernel_)}
    row = {"rows": len(y), "places": len(y_test), "density": density, "fit_s": fit_s, **found}
    if target == "poisson":
        row["truth"] = float(scipy.stats.poisson.logpmf(y_test, stored["rate_test"]).mean())
    return row


def glm_density(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, target: str
) -> float:
    """Mean log density of y_test by a generalised linear model on a quadratic of place."""
    shift, scale = X.mean(axis=0), X.std(axis=0)

    def columns(places: np.ndarray) -> np.ndarray:
        u, v = ((places - shift) / scale).T
        return np.column_stack([u, v, u**2, v**2, u * v])

    if target == "bernoulli":
        classes = LogisticRegression(C=1e6, max_iter=1_000).fit(columns(X), y)
        share = classes.predict_proba(columns(X_test))[:, 1]
        return float(scipy.stats.bernoulli.logpmf(y_test, share).mean())
    counts = PoissonRegressor(alpha=0, max_iter=1_000).fit(columns(X), y)
    return float(scipy.stats.poisson.logpmf(y_test, counts.predict(columns(X_test))).mean())


def measure_likelihoods(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a likelihood and method."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "field.npz")
        prepare_field(path, options["limit"])
        for target in options["targets"]:
            for method in options["field_methods"]:
                arguments = {"path": str(path), "target": target, "method": method}
                found = apart("target", **arguments, options=options)
                yield {"target": target, "method": method, **found}


def likelihoods_table(rows: Sequence[dict], options: dict[str, Any]) -> Table:
    """Densities beside those of the true rates, where there are such."""
    columns = {
        "target": ("likelihood", ""),
        "method": ("", ""),
        "rows": ("rows", ",d"),
        "places": ("places", ",d"),
        "density": ("mean log density", ".4f"),
        "truth": ("of the true rate", ".4f"),
        "fit_s": ("fit s", ".1f"),
        "step_s": ("s a step", ".3f"),
        "iterations": ("steps", "d"),
        "peak_mib": ("peak MiB", ",.0f"),
    }
    title = f"{options['field_kernel']}, {options['batch_rows']:,} rows a step, {options['dtype']}"
    return table_of(title, columns, rows)


# -- command ---------------------------------------------------------------------------------

TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "fit": measure_fit,
    "steps": measure_steps,
    "rate": measure_rate,
    "size": measure_size,
    "reading": measure_reading,
    "target": measure_target,
}


def run_data(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the tables."""
    if not os.environ.get("DASKGP_DATA") and set(options["sets"]) != {"ghcn"}:
        raise click.UsageError("set DASKGP_DATA to the folder with uci/, or choose --sets ghcn")
    rows = collect(measure_data(options))
    console.print(data_table(rows, options))
    for table in curve_tables(rows):
        console.print(table)
    return rows


def run_speed(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the table."""
    rows = collect(measure_speed(options))
    console.print(speed_table(rows, options))
    return rows


def run_growth(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the table and the slopes."""
    rows = collect(measure_growth(options))
    console.print(growth_table(rows, options))
    for line in slopes(rows):
        print(line)
    return rows


def run_reading(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the table."""
    rows = collect(measure_readers(options))
    console.print(reading_table(rows, options))
    return rows


def run_likelihoods(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the table."""
    rows = collect(measure_likelihoods(options))
    console.print(likelihoods_table(rows, options))
    return rows


def _names(
    option: str,
    known: Sequence[str],
    text: str,
    name: str | None = None,
    more: Sequence[str] = (),
) -> Any:
    """An option that takes some of the names that are known, by default all but ``more``."""
    return click.option(
        option,
        *([name] if name else []),
        default=",".join(known),
        callback=common.among((*known, *more)),
        show_default=True,
        help=text,
    )


def _count(option: str, default: int | None, text: str) -> Any:
    return click.option(
        option, type=click.IntRange(1), default=default, show_default=default is not None, help=text
    )


@click.command()
@_names("--only", PARTS, "Parts.")
@_names("--sets", SETS, "Of data.")
@_names("--contenders", CONTENDERS, f"Of data; also {', '.join(EXTRA)}.", more=tuple(EXTRA))
@_names("--stepped", STEPPED, "Contenders of speed.")
@_names("--targets", TARGETS, "Of likelihoods.")
@_names("--methods", FIELD_METHODS, "Of likelihoods.", "field_methods")
@_names("--dtypes", DTYPES, "Of speed and growth.")
@_count("--steps", 2_000, "Of data and likelihoods.")
@_count("--batch-rows", 1_024, "Most rows of a step.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--kernel", default="rbf(ard=true)", show_default=True, help="Of data.")
@click.option("--field-kernel", default="matern12()", show_default=True, help="Of likelihoods.")
@click.option("--curve", is_flag=True, help="Score fits of data on their way.")
@_count("--curve-every", 100, "Steps; runs go on from checkpoints where it is a multiple of 100.")
@_count("--limit", None, "Rows to train on, of data and likelihoods.")
@click.option("--by-day", is_flag=True, help="Put the rows of ghcn in the order of days.")
@click.option("--waves", is_flag=True, help="Add the waves of the year to ghcn.")
@click.option("--years", type=click.IntRange(1, 10), default=10, show_default=True, help="Of ghcn.")
@_count("--stations", million.STATIONS, "Stations of a generated network.")
@_count("--rows", 36_000, "Of speed.")
@_count("--features", 8, "Of speed, growth and reading.")
@_count("--inducing", 1_024, "Of speed.")
@_count("--measured", None, "Steps that are measured; default 60 of speed, 50 of growth.")
@_count("--gemm", 4_096, "Order of the matrix product of speed.")
@_count("--repeats", 2, "Runs of each contender of speed and reading.")
@click.option(
    "--sizes",
    default="2048,4096,8192,16384,32768",
    callback=common.numbers(int),
    show_default=True,
    help="Functions of the mean of growth.",
)
@_count("--growth-rows", 100_000, "Of growth.")
@click.option("--whole", is_flag=True, help="Learn all in growth.")
@_count("--n-covariance", 128, "Functions of the covariance of growth.")
@_count("--store-rows", 1_000_000, "Of reading.")
@_count("--chunk", 20_000, "Rows of a chunk, of reading and ghcn.")
@_count("--reading-steps", 640, "Steps of reading that are measured.")
@click.option("--here", hidden=True)
def main(only: list[str], here: str | None, **options: Any) -> None:
    """Measure and print the tables."""
    if here:
        task, arguments = json.loads(here)
        print(json.dumps(TASKS[task](**arguments)))
        return
    work = {
        "data": run_data,
        "speed": run_speed,
        "growth": run_growth,
        "reading": run_reading,
        "likelihoods": run_likelihoods,
    }
    console, rows = Console(width=190), []
    for part in only:
        rows += work[part](console, options)
    common.refuse_failures(rows)


if __name__ == "__main__":
    main()
