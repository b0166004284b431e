"""Computation-aware GPs: how well they predict, what they cost and how that grows.

    [DASKGP_DATA=folder] python workflows/benchmarks/cagp.py [--only speed,growth]

Every fit and every contender runs in a process of its own; peaks of memory are resident memory
with imports and data.  Results are printed as lines of JSON when they are there, then as tables.

``uci``, with DASKGP_DATA, a folder that holds ``uci/bike.npz`` and others (X, y, test_mask; split 0
is used): ``CaGP`` with learned sparse actions and ``SGPR`` with trained inducing inputs.  Columns
that are constant among the training rows are left out, targets are standardised by them.  The
paper's figures are those of [CAGP] table 1, CaGP-Opt and SGPR by L-BFGS, means over other splits;
its KEGG is another file (KEGGu, 26 columns) and is shown for orientation alone.

``speed``: the evidence lower bound, [CAGP] eq. 11, with its gradient by kernel parameters, noise
and every entry of the sparse actions, float64, all cores; beside the same by PyTorch, whose
autodiff goes through blocks of rows that are computed again in the backward pass, so that the
kernel matrix is never kept; "torch compiled" fuses the passes over a tile.  Values and gradients
are compared.  The floor is the time of 2 n² kernel entries at the rate at which
``kernel(X, Z, out=)`` fills the best of some shapes of tiles on all cores: no products with
actions, no gradient.

``growth``: seconds of an iteration against the rows of a Zarr store with bounded supports and
mini-batches, whose number of kernel entries does not depend on the rows.  "other s" is the rest of
the fit: scaling, the draw of supports, and a last pass over all rows.

``support``: the same data and scores as ``uci`` against the rows and the number of actions, trained
by L-BFGS on full sums.  ``--optimizer adam`` trains bounded supports on mini-batches, ``fewer``
where an iteration then takes less than half as many kernel entries.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import common
import numpy as np
from dask.system import CPU_COUNT
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import daskgp
from daskgp import kernels, metrics
from daskgp.data import dataset_writer, partition, rows_of
from daskgp.fit.panels import ActionRounds
from daskgp.kernels.weights import Weights
from daskgp.models.actions.cagp import CaGP
from daskgp.models.scaling import identity
from daskgp.models.values import Theta
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread

PARTS = ("uci", "speed", "growth", "support")
DATA = ("bike", "protein", "keggdirected", "kin40k", "pol", "elevators")
METHODS = ("cagp", "sgpr")
PUBLISHED = {
    ("bike", "cagp"): (-2.438, 0.017),
    ("bike", "sgpr"): (-3.017, 0.022),
    ("protein", "cagp"): (0.830, 0.545),
    ("protein", "sgpr"): (0.846, 0.562),
    ("keggdirected", "cagp"): (-0.694, 0.120),
    ("keggdirected", "sgpr"): (-0.712, 0.118),
}
"""NLL and RMSE of [CAGP] table 1, by L-BFGS."""
INDUCING = 1_024
NOISE, LENGTHSCALE = 0.1, 2.0
AGREES = 1e-6
TILES = (64, 512), (256, 1_024), (512, 2_048), (2_048, 2_048)
CHUNK = 65_536
NO_TORCH = (
    "PyTorch is not installed, so there is nothing to compare with: pip install 'daskgp[bench]', "
    "or pip install torch --index-url https://download.pytorch.org/whl/cpu"
)


# -- processes -------------------------------------------------------------------------------


def apart(task: str, **arguments: Any) -> dict[str, Any]:
    """What a task finds in a process of its own, with its peak memory; a remark where it fails."""
    words = [sys.executable, __file__, "--here", json.dumps([task, arguments])]
    try:
        ran = common.run(words)
    except RuntimeError as error:
        return {"remark": f"failed: {error}"}
    return {**ran.result, "peak_mib": ran.peak_mib}


def collect(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows, each printed when it is there."""
    found = []
    for row in rows:
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def table_of(title: str, columns: dict[str, tuple[str, str]], rows: Sequence[dict]) -> Table:
    """Rows under the headings and in the formats of the columns, with what failed."""
    table = Table(title=title)
    for heading, form in columns.values():
        table.add_column(heading, justify="right" if form else "left")
    table.add_column("remark")
    for row in rows:
        cells = (
            "–" if row.get(key) is None else format(row[key], form)
            for key, (_, form) in columns.items()
        )
        table.add_row(*cells, escape(row.get("remark", "")))
    return table


# -- data of the UCI repository --------------------------------------------------------------


class Split(NamedTuple):
    """Rows to train on and to test on."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def read_split(name: str, limit: int | None) -> Split:
    """Split 0, targets standardised; at most ``limit`` rows to train on, drawn at random."""
    stored = np.load(Path(os.environ["DASKGP_DATA"], "uci", f"{name}.npz"))
    test = stored["test_mask"][:, 0].astype(bool)
    train = np.flatnonzero(~test)
    if limit is not None:
        train = np.sort(np.random.default_rng(0).permutation(train)[:limit])
    X, y = stored["X"], stored["y"].ravel()
    varies = np.ptp(X[train], axis=0) > 0
    y = (y - y[train].mean()) / y[train].std()
    return Split(X[train][:, varies], y[train], X[test][:, varies], y[test])


def measure_fit(
    data: str, method: str, limit: int | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Scores of standardised targets, seconds and iterations of one model."""
    X, y, X_test, y_test = read_split(data, limit)
    known: dict[str, Any] = {"cagp": daskgp.CaGP, "sgpr": daskgp.SGPR}
    model = known[method](kernels.Matern32(ard=True), progress=False, **settings)
    began = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    mean, std = model.predict(X_test, return_std=True, include_noise=True)
    done = time.perf_counter()
    return {
        "rows": len(y),
        "features": X.shape[1],
        "nll": metrics.nlpd(y_test, mean, std**2),
        "rmse": metrics.rmse(y_test, mean),
        "coverage": metrics.coverage(y_test, mean, std**2, level=0.95),
        "fit_s": fitted - began,
        "predict_s": done - fitted,
        "iterations": len(model.history_),
        "evaluations": model.history_[-1]["evaluations"] if model.history_ else 0,
        "objective": model.objective_,
        "noise": model.noise_variance_,
    }


FITTED = {
    "rows": ("rows", ",d"),
    "nll": ("NLL", ".3f"),
    "rmse": ("RMSE", ".4f"),
    "coverage": ("coverage", ".3f"),
    "fit_s": ("fit s", ".1f"),
    "predict_s": ("predict s", ".1f"),
    "iterations": ("iterations", "d"),
    "evaluations": ("evaluations", "d"),
    "peak_mib": ("peak MiB", ",.0f"),
}
"""Heading and format of what ``measure_fit`` finds."""


def measure_uci(
    data: Sequence[str], methods: Sequence[str], actions: int, options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """A row a data set and method."""
    inducing = options["inducing"]
    training = {"max_iter": options["iterations"] or 100}
    settings = {
        "cagp": {"n_actions": actions, "order": "auto", **training},
        "sgpr": {"n_inducing": inducing, "train_inducing": True, **training},
    }
    for name in data:
        for method in methods:
            found = apart(
                "fit",
                data=name,
                method=method,
                limit=options["limit"],
                settings=settings[method],
            )
            nll, rmse = PUBLISHED.get((name, method), (None, None))
            yield {"data": name, "method": method, **found, "paper_nll": nll, "paper_rmse": rmse}


def uci_table(rows: Sequence[dict], actions: int, inducing: int) -> Table:
    """Scores beside the paper's."""
    columns = {"data": ("data", ""), "method": ("", ""), **FITTED}
    columns |= {"paper_nll": ("paper's NLL", ".3f"), "paper_rmse": ("paper's RMSE", ".3f")}
    title = f"CaGP with {actions} sparse actions, SGPR with {inducing:,} inducing inputs"
    return table_of(title, columns, rows)


def measure_support(
    data: Sequence[str],
    supports: Sequence[int | None],
    counts: Sequence[int],
    options: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """A row a data set, number of actions and support."""
    for name in data:
        n = len(read_split(name, options["limit"]).y)
        for count in counts:
            for support in supports:
                row: dict[str, Any] = {"data": name, "method": f"{count} on {support or 'all'}"}
                points = n if support is None else support * count
                row |= {"n_actions": count, "support": "all" if support is None else str(support)}
                if points > n:
                    yield {**row, "remark": f"{points:,} points, more than rows"}
                    continue
                settings = {"n_actions": count, "support": support}
                settings |= _training(options["optimizer"], n, support, points, options)
                row |= {"points": points, "optimizer": settings["optimizer"]}
                yield {
                    **row,
                    **apart(
                        "fit", data=name, method="cagp", limit=options["limit"], settings=settings
                    ),
                }


def _training(
    optimizer: str, n: int, support: int | None, points: int, options: dict[str, Any]
) -> dict[str, Any]:
    """The optimizer of bounded supports; where all rows are points there are no mini-batches."""
    batch = min(options["batch_rows"] or 4_000, n)
    fewer = 2 * (batch + points) < n if optimizer == "fewer" else optimizer == "adam"
    if support is None or not fewer:
        return {"optimizer": "l-bfgs", "max_iter": options["iterations"] or 100}
    return {"optimizer": "adam", "batch_rows": batch, "max_iter": options["iterations"] or 400}


def support_table(rows: Sequence[dict]) -> Table:
    """Scores against support and number of actions."""
    columns = {
        "data": ("data", ""),
        "n_actions": ("actions", "d"),
        "support": ("support", ">s"),
        "points": ("points", ",d"),
        "optimizer": ("trained by", ""),
    }
    return table_of("Scores against support", {**columns, **FITTED}, rows)


# -- speed -----------------------------------------------------------------------------------


class Problem(NamedTuple):
    """Rows (n, d) in no order, targets (n,), weights (n,) of unit actions and whose they are."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    owner: np.ndarray


class Found(NamedTuple):
    """The bound and its gradient by logs of kernel parameters, log of noise, and weights."""

    value: float
    kernel: np.ndarray
    noise: float
    weights: np.ndarray


def make_problem(rows: int, features: int, actions: int) -> Problem:
    """A smooth noisy function; actions are nearly local means of rows next to one another."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features))
    y = np.sin(X @ np.linspace(1, 0.2, features)) + NOISE**0.5 * rng.standard_normal(rows)
    edges = np.linspace(0, rows, actions + 1).astype(np.int64)
    owner = np.repeat(np.arange(actions), np.diff(edges))
    weights = 1 + 0.1 * rng.standard_normal(rows)
    lengths = np.sqrt(np.bincount(owner, weights**2, actions))
    return Problem(X, y, weights / lengths[owner], owner)


def with_daskgp(problem: Problem, block_rows: int | None) -> Callable[[], Found]:
    """Two rounds over blocks by the threads of this process."""
    (n, d), t = problem.X.shape, int(problem.owner[-1]) + 1
    rows = rows_of(problem.X, problem.y, "", shared_memory=True)
    spans = tuple(partition.blocks(n, rows.chunks, block_rows))
    theta = Theta(kernels.Matern32(lengthscale=(LENGTHSCALE,) * d), NOISE, None)
    acts = ActionRounds(
        CaGP("elbo"), rows, spans, rows, n, identity(d, 1), Executor(None, show=False)
    )
    weights = Weights(problem.weights, problem.owner, t)

    def evaluate() -> Found:
        found = acts.value_and_gradient(theta, weights)
        assert found.weights is not None
        return Found(found.value, found.kernel, found.noise, found.weights)

    return evaluate


def with_torch(
    problem: Problem, block_rows: int | None, compiled: bool = False
) -> Callable[[], Found]:
    """Autodiff through blocks of rows that are computed again in the backward pass.

    The points of an action are padded with points of no weight, so that all have as many.
    ``compiled`` fuses the elementwise passes over a tile, for which a C++ compiler is needed.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    torch.set_default_dtype(torch.float64)
    (n, d), owner = problem.X.shape, torch.tensor(problem.owner)
    counts = np.bincount(problem.owner)
    t, k = len(counts), int(counts.max())
    starts = np.cumsum(counts) - counts
    place = torch.tensor(problem.owner * k + np.arange(n) - starts[problem.owner])
    X, y = torch.tensor(problem.X), torch.tensor(problem.y)
    Z = torch.zeros(t * k, d).index_copy(0, place, X)
    log_kernel = torch.tensor(np.log([1.0, *[LENGTHSCALE] * d]), requires_grad=True)
    log_noise = torch.tensor(np.log(NOISE), requires_grad=True)
    weights = torch.tensor(problem.weights, requires_grad=True)

    def matern(q: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        s = torch.sqrt(torch.clamp_min(q, 1e-30))  # no slope at coincident points
        return variance * (1 + s) * torch.exp(-s)

    entries: Any = torch.compile(matern, dynamic=True) if compiled else matern

    def sums(
        rows: slice, log_kernel: torch.Tensor, weights: torch.Tensor, padded: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        scale = torch.exp(log_kernel[1:]) / 3**0.5
        u, z = X[rows] / scale, Z / scale
        u2, z2 = (u * u).sum(dim=1, keepdim=True), (z * z).sum(dim=1, keepdim=True)
        left = torch.cat([-2 * z, torch.ones_like(z2), z2], dim=1)
        right = torch.cat([u, u2, torch.ones_like(u2)], dim=1)
        K = entries(left @ right.T, torch.exp(log_kernel[0]))
        F = torch.bmm(padded.view(t, 1, k), K.view(t, k, -1))[:, 0]
        G = torch.zeros(t, t).index_add(1, owner[rows], F * weights[rows])
        return F @ F.T, F @ y[rows], G

    def bound() -> torch.Tensor:
        padded = torch.zeros(t * k).index_copy(0, place, weights)
        M, c, G = torch.zeros(t, t), torch.zeros(t), torch.zeros(t, t)
        step = block_rows or 1_000
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            M_i, c_i, G_i = checkpoint(sums, rows, log_kernel, weights, padded, use_reentrant=False)
            M, c, G = M + M_i, c + c_i, G + G_i
        T = torch.zeros(t).index_add(0, owner, weights**2)
        b = torch.zeros(t).index_add(0, owner, weights * y)
        trace = n * torch.exp(log_kernel[0])
        return _evidence(log_noise, M, c, 0.5 * (G + G.T), T, b, y @ y, trace, n)

    def evaluate() -> Found:
        value = bound()
        kernel, noise, by_weights = torch.autograd.grad(value, (log_kernel, log_noise, weights))
        return Found(value.item(), kernel.numpy(), noise.item(), by_weights.numpy())

    return evaluate


def _evidence(
    log_noise: Any, M: Any, c: Any, G: Any, T: Any, b: Any, square: Any, trace: Any, n: int
) -> Any:
    """[CAGP] eq. 11 of PyTorch's sums over rows; T is the diagonal of S' S."""
    import torch

    s, t = torch.exp(log_noise), len(T)
    L = torch.linalg.cholesky(G + s * torch.diag(T))
    v = torch.cholesky_solve(b[:, None], L)[:, 0]
    explained = torch.cholesky_solve(torch.stack([M, G]), L).diagonal(dim1=1, dim2=2).sum(dim=1)
    misfit = square - 2 * c @ v + v @ M @ v + trace - explained[0]
    return -0.5 * (
        misfit / s
        + (n - t) * log_noise
        + n * np.log(2 * np.pi)
        + v @ G @ v
        - explained[1]
        + 2 * torch.log(L.diagonal()).sum()
        - torch.log(T).sum()
    )


CONTENDERS: dict[str, Callable[..., Callable[[], Found]]] = {
    "daskgp": with_daskgp,
    "torch": with_torch,
    "torch compiled": partial(with_torch, compiled=True),
}


def measure_contender(
    name: str,
    rows: int,
    features: int,
    actions: int,
    repeats: int,
    block_rows: int | None,
    path: str,
) -> dict[str, Any]:
    """Fewest seconds of a few values and gradients after a small one, which is warmer."""
    few = max(rows // 16, actions)
    CONTENDERS[name](make_problem(few, features, actions), block_rows)()
    evaluate, seconds = CONTENDERS[name](make_problem(rows, features, actions), block_rows), []
    for _ in range(repeats):
        began = time.perf_counter()
        found = evaluate()
        seconds.append(time.perf_counter() - began)
    np.savez(path, **found._asdict())
    return {"seconds": min(seconds), "value": found.value}


def measure_tiles(features: int, seconds: float) -> dict[str, Any]:
    """Kernel entries a second on all cores, of the best shape of tiles."""
    kernel = kernels.Matern32(lengthscale=(LENGTHSCALE,) * features)
    rates = {}
    for shape in TILES:

        def fill(seed: int, shape: tuple[int, int] = shape) -> int:
            rng = np.random.default_rng(seed)
            X, Z = (rng.standard_normal((size, features)) for size in shape)
            out, number, end = np.empty(shape), 0, time.perf_counter() + seconds
            while time.perf_counter() < end:
                kernel(X, Z, out=out)
                number += out.size
            return number

        with single_blas_thread(), ThreadPoolExecutor(CPU_COUNT) as pool:
            began = time.perf_counter()
            total = sum(pool.map(fill, range(CPU_COUNT)))
            rates[f"{shape[0]} x {shape[1]}"] = total / (time.perf_counter() - began)
    shape = max(rates, key=lambda name: rates[name])
    return {"rate": rates[shape], "tile": shape, "rates": rates}


def measure_speed(rows: int, actions: int, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The floor, then the contenders; those by PyTorch with how far they are from daskgp."""
    features = options["features"]
    tiles = apart("tiles", features=features, seconds=options["tile_seconds"])
    if "rate" in tiles:
        tiles["seconds"] = 2 * rows**2 / tiles["rate"]
    yield {"method": "floor", **tiles}
    with tempfile.TemporaryDirectory() as folder:
        for name in options["contenders"]:
            ours = name == "daskgp"
            if not ours and importlib.util.find_spec("torch") is None:
                yield {"method": name, "remark": NO_TORCH}
                return
            row = {"method": name} | apart(
                "contender",
                name=name,
                rows=rows,
                features=features,
                actions=actions,
                repeats=options["repeats"],
                block_rows=options["block_rows"] if ours else options["torch_rows"],
                path=str(Path(folder, f"{name}.npz")),
            )
            if not ours and Path(folder, "daskgp.npz").exists() and "value" in row:
                row |= differences(Path(folder, "daskgp.npz"), Path(folder, f"{name}.npz"))
            yield row


def differences(ours: Path, theirs: Path) -> dict[str, Any]:
    """Largest difference of the value and of each part of the gradient, over the largest entry."""
    a, b = np.load(ours), np.load(theirs)
    found = {
        name: float(np.abs(a[name] - b[name]).max() / np.abs(b[name]).max())
        for name in Found._fields
    }
    worst = max(found.values())
    agrees = {} if worst < AGREES else {"remark": f"failed: differs from daskgp by {worst:.1g}"}
    return {"differences": found, "worst": worst, **agrees}


def speed_table(rows: Sequence[dict], n: int, actions: int, features: int) -> Table:
    """Seconds and memory as ratios to daskgp and the floor."""
    by_name = {row["method"]: row for row in rows}
    ours, floor = by_name.get("daskgp", {}), by_name["floor"]
    shown = []
    for row in rows:
        ratios = {
            f"{key}_over_{name}": row[key] / base[key]
            for name, base in (("ours", ours), ("floor", floor))
            for key in ("seconds", "peak_mib")
            if key in row and key in base
        }
        shown.append({**row, **ratios})
    columns = {
        "method": ("", ""),
        "seconds": ("seconds", ".2f"),
        "seconds_over_floor": ("× floor", ".2f"),
        "seconds_over_ours": ("× daskgp", ".2f"),
        "peak_mib": ("peak MiB", ",.0f"),
        "peak_mib_over_ours": ("× daskgp", ".2f"),
        "value": ("bound", ".4f"),
        "worst": ("differs by", ".1e"),
    }
    rate = f"{floor.get('rate', np.nan) / 1e6:,.0f} million entries/s in tiles {floor.get('tile')}"
    title = f"Bound and gradient, n = {n:,}, d = {features}, {actions} sparse actions; {rate}"
    return table_of(title, columns, shown)


# -- growth ----------------------------------------------------------------------------------


def write(path: Path, rows: int, features: int) -> None:
    """A seeded dataset, written chunk by chunk."""
    names = tuple(f"x{j}" for j in range(features))
    with dataset_writer(str(path), names, ("y",), CHUNK) as writer:
        for start in range(0, rows, CHUNK):
            rng = np.random.default_rng(start)
            X = rng.uniform(-2, 2, (min(CHUNK, rows - start), features))
            writer.append(X, np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(len(X)))


def measure_store(path: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the iterations of one fit, of the first of them, and of all else."""
    X, y = daskgp.open_dataset(path)
    model = daskgp.CaGP(kernels.Matern32(ard=True), progress=False, **settings)
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    marks = np.array([0.0, *(entry["seconds"] for entry in model.history_)])
    steps = np.diff(marks)
    later = steps[1:] if len(steps) > 1 else steps
    return {
        "iteration_s": float(np.median(later)),
        "first_s": float(steps[0]),
        "iterations": len(steps),
        "other_s": seconds - float(marks[-1]),
    }


def measure_growth(
    sizes: Sequence[int], actions: int, support: int, options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """A row a number of rows."""
    settings = {
        "n_actions": actions,
        "support": support,
        "batch_rows": options["batch_rows"] or 20_000,
        "optimizer": "adam",
        "max_iter": options["iterations"] or 5,
    }
    for n in sorted(sizes):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "rows.zarr")
            write(path, n, options["features"])
            few = {**settings, "batch_rows": min(n, settings["batch_rows"])}
            yield {"method": f"{n:,}", "rows": n, **apart("store", path=str(path), settings=few)}


def growth_table(rows: Sequence[dict], actions: int, support: int) -> Table:
    """Seconds and memory against rows, as ratios to the fewest."""
    ratios = ({"ratio": row["iteration_s"] / base} for row, base in _over_first(rows))
    columns = {
        "rows": ("rows", ",d"),
        "iteration_s": ("s an iteration", ".2f"),
        "ratio": ("× fewest rows", ".2f"),
        "first_s": ("first s", ".2f"),
        "iterations": ("iterations", "d"),
        "other_s": ("other s", ".1f"),
        "peak_mib": ("peak MiB", ",.0f"),
    }
    shown = [{**row, **(next(ratios) if "iteration_s" in row else {})} for row in rows]
    return table_of(f"{actions} actions on {support} rows each, from Zarr", columns, shown)


def _over_first(rows: Sequence[dict]) -> Iterator[tuple[dict, float]]:
    ran = [row for row in rows if "iteration_s" in row]
    return ((row, ran[0]["iteration_s"]) for row in ran)


# -- command ---------------------------------------------------------------------------------

TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "fit": measure_fit,
    "contender": measure_contender,
    "tiles": measure_tiles,
    "store": measure_store,
}


def _needs_data() -> None:
    if not os.environ.get("DASKGP_DATA"):
        raise click.UsageError("set DASKGP_DATA to the folder with uci/ for this part")


def run_uci(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the table."""
    _needs_data()
    actions = (options["actions"] or [512])[0]
    data = options["data"] or DATA[:3]
    rows = collect(measure_uci(data, options["methods"], actions, options))
    console.print(uci_table(rows, actions, options["inducing"]))
    return rows


def run_speed(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the table."""
    n, actions = options["rows"], (options["actions"] or [512])[0]
    rows = collect(measure_speed(n, actions, options))
    console.print(speed_table(rows, n, actions, options["features"]))
    return rows


def run_growth(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the table."""
    actions = (options["actions"] or [512])[0]
    support = next((k for k in options["supports"] if k), 64) if options["supports"] else 64
    rows = collect(measure_growth(options["sizes"], actions, support, options))
    console.print(growth_table(rows, actions, support))
    ran = [row for row in rows if "iteration_s" in row]
    if len(ran) > 1:
        seconds, peaks = ([row[key] for row in ran] for key in ("iteration_s", "peak_mib"))
        print(
            f"{ran[-1]['rows'] / ran[0]['rows']:.0f} times the rows: {seconds[-1] / seconds[0]:.2f}"
            f" times the seconds of an iteration, {peaks[-1] / peaks[0]:.2f} times the memory"
        )
    return rows


def run_support(console: Console, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure and print the table."""
    _needs_data()
    data, counts = options["data"] or ["kin40k", "protein"], options["actions"] or [128, 512]
    rows = collect(measure_support(data, options["supports"] or [16, 64, None], counts, options))
    console.print(support_table(rows))
    return rows


def _supports_of(ctx: click.Context, option: click.Parameter, text: str) -> list[int | None]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    bounded = [word for word in words if word != "all"]
    known = iter(common.numbers(int)(ctx, option, ",".join(bounded)))
    return [None if word == "all" else next(known) for word in words]


@click.command()
@click.option("--only", default=",".join(PARTS), callback=common.among(PARTS), show_default=True)
@click.option("--data", default="", callback=common.among(DATA), help="Of uci and support.")
@click.option(
    "--methods", default=",".join(METHODS), callback=common.among(METHODS), help="Of uci."
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    help="At most; default 100 for uci and support (400 by Adam), 5 for growth.",
)
@click.option(
    "--actions", default="", callback=common.numbers(int), help="Default 512; support: 128,512."
)
@click.option("--inducing", default=INDUCING, show_default=True, help="Of SGPR.")
@click.option("--limit", type=click.IntRange(1), help="Rows to train on, of uci and support.")
@click.option("--rows", default=36_000, show_default=True, help="Of speed.")
@click.option("--features", default=8, show_default=True, help="Of speed and growth.")
@click.option(
    "--contenders",
    default=",".join(CONTENDERS),
    callback=common.among(CONTENDERS),
    help="Of speed.",
)
@click.option("--repeats", default=2, show_default=True, help="Of speed.")
@click.option("--block-rows", type=click.IntRange(1), help="Of daskgp's blocks in speed.")
@click.option("--torch-rows", default=1_000, show_default=True, help="Of PyTorch's blocks.")
@click.option("--tile-seconds", default=2.0, show_default=True, help="Each shape of tiles.")
@click.option(
    "--sizes",
    default="100000,1000000,4000000",
    callback=common.numbers(int),
    show_default=True,
    help="Rows of growth.",
)
@click.option(
    "--supports", default="", callback=_supports_of, help="Default 16,64,all; growth: 64."
)
@click.option(
    "--batch-rows", type=click.IntRange(1), help="Default 20,000 for growth, 4,000 for support."
)
@click.option(
    "--optimizer",
    default="l-bfgs",
    type=click.Choice(["l-bfgs", "adam", "fewer"]),
    show_default=True,
    help="Of bounded supports in support.",
)
@click.option("--here", hidden=True)
def main(only: list[str], here: str | None, **options: Any) -> None:
    """Measure and print the tables."""
    if here:
        task, arguments = json.loads(here)
        print(json.dumps(TASKS[task](**arguments)))
        return
    work = {"uci": run_uci, "speed": run_speed, "growth": run_growth, "support": run_support}
    console, rows = Console(width=190), []
    for part in only:
        rows += work[part](console, options)
    common.refuse_failures(rows)


if __name__ == "__main__":
    main()
