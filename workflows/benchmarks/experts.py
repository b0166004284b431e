"""Combined experts: how well they predict, how they are trained and what they cost.

    python workflows/benchmarks/experts.py [--only ackley] [--quick] [--figures folder]

After the experiments of the paper on optimal weights ([OPT], section 5); what it leaves open is
said here.

``ackley``: 10,000 rows drawn at random in [-1, 1]² with noise of the variance that the model has
(``--noise 0`` for none), 2,500 places on a grid, RBF kernel with fixed hyper-parameters, mean zero;
128 rows drawn at random as inducing inputs of all sparse experts.  RMSE and NLPD are against the
function without noise, NLPD of predictions with noise; seconds are those of fit and prediction.
"optimal" has weights from the projection with the default shrinkage of sparse experts, "g = 0" and
"g = 0.1" others; "paper" the paper's weights with its variance, "paper linear" the same mean with
the error variance of the weighted sum.

``recovery``: targets drawn from a GP on [-1, 1]² with lengthscales 0.3 and 1.3, standard deviations
0.2 of f and 0.1 of noise; training starts at 2.0, 0.3, root of 1.5 and 1.0.  128 inducing inputs
chosen greedily stay where they are.  Rates of Adam are 0.1, and 0.05 for FACT; half of the experts
take part in a round of FedProx.  All make 200 rounds (``--rounds``), ADMM a quarter of them: its
rounds have four times the steps.  "one GP" is SGPR with the same inducing inputs by L-BFGS: what
the rows say.

``uci``, with DASKGP_DATA, a folder that holds ``uci/pol.npz`` and others (X, y): four fifths of the
rows drawn at random to train on, 128 inducing inputs chosen greedily, RBF kernel with a lengthscale
a column.  All methods share the hyper-parameters of one training, by default FACT with L-BFGS, or
another with ``--training``.  RMSE of the mean of y ("trivial") tells the units of the paper: they
are those of the files.

``speed``: a fit pass and predictions of a store, beside SGPR, with hyper-parameters and inducing
inputs given.  The floor is the operations of a pass over rows at the rate of a matrix product on
one thread, times the number of workers: for a row and m inducing inputs, m² for whitening and m²
for the symmetric product of the fit, m² and 2 m² for the variance of a prediction.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import common
import experts_predictions as predictions
import numpy as np
from experts_predictions import as_json
from rich.console import Console
from rich.table import Table

import daskgp
from daskgp import ExpertsGP, data, kernels
from daskgp.plot import curves
from daskgp.runtime.process import single_blas_thread

PARTS = ("ackley", "recovery", "uci", "speed")
TRUTH = {"lengthscale[0]": 0.3, "lengthscale[1]": 1.3, "variance": 0.04, "noise_variance": 0.01}
START = {"kernel": kernels.RBF((2.0, 0.3), 1.5, ard=True), "noise_variance": 1.0}
TRAININGS: dict[str, dict[str, Any]] = {
    "FACT": {"training": "fact", "optimizer": "adam"},
    "ADMM": {"training": "admm", "learning_rate": 0.1},
    "pxADMM": {"training": "pxadmm"},
    "FedAvg": {"training": "fedavg", "learning_rate": 0.1},
    "FedProx": {"training": "fedprox", "sampling_rate": 0.5, "learning_rate": 0.1},
}
UCI_EXPERTS = {"pol": (4, 10, 20), "elevators": (4, 10, 20), "kin40k": (8, 16, 64)}
UCI_EXPERTS |= {"keggdirected": (8, 16, 64), "protein": (8, 16, 64)}
SPEED_FEATURES = 8


# -- recovery --------------------------------------------------------------------------------


def draw_gp(n: int, seed: int) -> predictions.Rows:
    """Rows in the square with targets drawn from the exact GP."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    kernel = kernels.RBF((0.3, 1.3), TRUTH["variance"], ard=True)
    K = kernel(X)
    K[np.diag_indices(n)] += TRUTH["noise_variance"]
    return predictions.Rows(X, np.linalg.cholesky(K) @ rng.standard_normal(n))


def measure_recovery(
    rows: predictions.Rows, counts: Sequence[int], rounds: int, inducing: int
) -> Iterator[dict[str, Any]]:
    """Every hyper-parameter round by round, a row a way of training and number of experts."""
    settings: dict[str, Any] = {"mean": "zero", "standardize": False, "progress": False, **START}
    full = daskgp.SGPR(n_inducing=inducing, **settings).fit(*rows)
    yield {"training": predictions.FULL, "experts": 1, **_parameters(full)}
    for count in counts:
        for name, training in TRAININGS.items():
            model = ExpertsGP(
                n_experts=count,
                inducing=full.inducing_,
                max_iter=-(-rounds // 4) if name == "ADMM" else rounds,
                tol=1e-12,  # as many rounds as there are
                **settings,
                **training,
            )
            began = time.perf_counter()
            model.fit(*rows)
            seconds = time.perf_counter() - began
            row = {"training": name, "experts": count, "rounds": len(model.history_)}
            row.update(seconds=seconds, **_parameters(model))
            yield {**row, "path": {key: [h[key] for h in model.history_] for key in TRUTH}}


def _parameters(model: Any) -> dict[str, float]:
    names, values = model.kernel_.parameter_names, np.exp(model.kernel_.log_parameters)
    found = dict(zip(names, map(float, values), strict=True))
    return {**found, "noise_variance": float(model.noise_variance_)}


def recovery_table(rows: Sequence[dict], seeds: int) -> Table:
    """Hyper-parameters at the end, means over draws."""
    table = Table(title=f"Hyper-parameters after training, mean over {seeds} draws")
    headings = "lengthscale 1", "lengthscale 2", "sd of f", "sd of noise"
    for column in ("", "M", *headings, "rounds", "seconds"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("truth", "", *_shown(TRUTH), "", "")
    for key in dict.fromkeys((row["training"], row["experts"]) for row in rows):
        own = [row for row in rows if (row["training"], row["experts"]) == key]
        means = {name: float(np.mean([row[name] for row in own])) for name in TRUTH}
        spent = [
            f"{np.mean([row[name] for row in own]):.0f}" if name in own[0] else ""
            for name in ("rounds", "seconds")
        ]
        table.add_row(key[0], str(key[1]), *_shown(means), *spent)
    return table


def _shown(values: dict[str, float]) -> list[str]:
    return [f"{v**0.5 if 'variance' in name else v:.3f}" for name, v in values.items()]


def draw_recovery_figure(rows: Sequence[dict], count: int, path: Path) -> None:
    """Hyper-parameters round by round with one number of experts, first draw."""
    paths: dict[str, dict] = {}
    for row in rows:
        if row["experts"] == count and "path" in row:
            paths.setdefault(row["training"], row["path"])
    names = "lengthscale 1", "lengthscale 2", "variance of f", "noise variance"
    labels = dict(zip(TRUTH, names, strict=True))
    panels = {
        label: {name: np.array(found[key]) for name, found in paths.items()}
        for key, label in labels.items()
    }
    truth = {label: TRUTH[key] for key, label in labels.items()}
    curves.traces(panels, name="round", reference=truth, title=f"{count} experts", path=path)


# -- speed -----------------------------------------------------------------------------------


def write_rows(path: Path, rows: int, chunk: int) -> None:
    """A seeded dataset, written chunk by chunk."""
    names = tuple(f"x{j}" for j in range(SPEED_FEATURES))
    with data.dataset_writer(str(path), names, ("y",), chunk) as writer:
        for start in range(0, rows, chunk):
            rng = np.random.default_rng(start)
            X = rng.uniform(-2, 2, (min(chunk, rows - start), SPEED_FEATURES))
            writer.append(X, np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(len(X)))


def product_rate() -> float:
    """Operations a second of a matrix product of order 1,024 on one thread, the best of some."""
    A = np.random.default_rng(0).standard_normal((1_024, 1_024))
    with single_blas_thread():
        return 2 * len(A) ** 3 / min(_timed(lambda: A @ A) for _ in range(8))


def _timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def measure_speed(
    rows: int, experts: int, inducing: int, chunk: int, workers: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """Seconds of fit and of prediction of both, in turn."""
    Z = np.random.default_rng(1).uniform(-2, 2, (inducing, SPEED_FEATURES))
    settings: dict[str, Any] = {
        "kernel": kernels.RBF((2.0,) * SPEED_FEATURES, 1.0, ard=True),
        "noise_variance": 0.01,
        "inducing": Z,
        "optimizer": None,
        "progress": False,
    }
    models = {
        "experts": ExpertsGP(n_experts=experts, partition="chunks", **settings),
        "sgpr": daskgp.SGPR(**settings),
    }
    with tempfile.TemporaryDirectory() as folder, daskgp.connect(n_workers=workers):
        store = Path(folder, "rows.zarr")
        write_rows(store, rows, chunk)
        X, y = daskgp.open_dataset(str(store))
        few = slice(0, min(rows, 2 * chunk))
        for model in models.values():  # imports and BLAS of the workers
            model.fit(X[few], y[few])
        for turn in range(repeats):
            for name, model in models.items():
                fit = _timed(lambda model=model: model.fit(X, y))
                output = str(Path(folder, f"{name}-{turn}.zarr"))
                place = str(store), output
                predict = _timed(lambda model=model, place=place: model.predict_store(*place))
                yield {"model": name, "turn": turn, "fit": fit, "predict": predict}


def speed_table(found: Sequence[dict], rows: int, inducing: int, workers: int) -> Table:
    """Medians, their ratios and the floor."""
    rate = product_rate()
    table = Table(title=f"{rows:,} rows, m = {inducing}; GEMM {rate / 1e9:.0f} GFLOP/s a worker")
    for column in ("", "experts s", "SGPR s", "ratio", "floor s", "floor / experts"):
        table.add_column(column, justify="right" if column else "left")
    for work, each in (("fit", 2), ("predict", 3)):
        ours, theirs = (
            float(np.median([row[work] for row in found if row["model"] == name]))
            for name in ("experts", "sgpr")
        )
        floor = each * rows * inducing**2 / (rate * workers)
        cells = (ours, theirs, ours / theirs, floor, floor / ours)
        table.add_row(work, *(f"{value:.2f}" for value in cells))
    return table


# -- command ---------------------------------------------------------------------------------


def _collect(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows, each printed when it is there."""
    found = []
    for row in rows:
        found.append(row)
        print(as_json({key: value for key, value in row.items() if key != "path"}), flush=True)
    return found


def run_ackley(console: Console, options: dict[str, Any]) -> None:
    """Measure, print the tables and draw."""
    problem = predictions.Ackley(noise=options["noise"], methods=options["methods"])
    if options["quick"]:
        problem = problem._replace(rows=600, side=12, inducing=32)
    counts = options["experts"] or ((2, 6) if options["quick"] else (2, 4, 8, 10, 20, 40, 80, 100))
    lengthscales = options["lengthscales"] or np.round(np.arange(0.2, 2.01, 0.2), 1).tolist()
    seeds = range(1, options["seeds"] + 1)
    for expert in options["expert"]:
        work = predictions.measure_ackley(problem, expert, counts, lengthscales, seeds)
        rows = _collect(work)
        title = f"{expert} experts, {len(lengthscales)} lengthscales, {len(seeds)} draws"
        for score in predictions.SCORES:
            console.print(predictions.spread_table(rows, score, title))
        print(predictions.ackley_verdict(rows))
        if options["figures"]:
            path = options["figures"] / f"experts-ackley-{expert}.png"
            predictions.draw_ackley_figure(rows, path)


def run_recovery(console: Console, options: dict[str, Any]) -> None:
    """Measure, print the table and draw."""
    n, inducing = (400, 20) if options["quick"] else (10_000, 128)
    counts = options["experts"] or ((3,) if options["quick"] else (2, 8, 20, 40, 100))
    rows = []
    for seed in range(1, options["seeds"] + 1):
        rows += _collect(
            measure_recovery(draw_gp(n, seed), counts, options["rounds"] or 200, inducing)
        )
    console.print(recovery_table(rows, options["seeds"]))
    if options["figures"]:
        middle = sorted(counts)[len(counts) // 2]
        draw_recovery_figure(rows, middle, options["figures"] / "experts-recovery.png")


def run_uci(console: Console, options: dict[str, Any]) -> None:
    """Measure and print the tables."""
    folder = os.environ.get("DASKGP_DATA")
    if not folder:
        raise click.UsageError("set DASKGP_DATA to the folder with uci/ for this part")
    inducing, rounds = 16 if options["quick"] else 128, options["rounds"] or 100
    problem = predictions.Uci(inducing, options["training"], rounds, options["methods"])
    rows = []
    for name in options["data"]:
        stored = np.load(Path(folder, "uci", f"{name}.npz"))
        keep = slice(0, 500 if options["quick"] else None)
        source = predictions.Rows(stored["X"][keep], stored["y"][keep].ravel())
        counts = options["experts"] or ((4,) if options["quick"] else UCI_EXPERTS[name])
        seeds = range(1, options["seeds"] + 1)
        rows += _collect(predictions.measure_uci(problem, name, source, counts, seeds))
    for score in predictions.SCORES:
        if score != "seconds":
            console.print(predictions.uci_table(rows, score))


def run_speed(console: Console, options: dict[str, Any]) -> None:
    """Measure and print the table."""
    rows, chunk, inducing = options["rows"], options["chunk"], 128
    count = (options["experts"] or (100,))[0]
    if options["quick"]:
        rows, chunk, inducing, count = 4_000, 500, 16, 4
    workers, repeats = options["workers"], 1 if options["quick"] else options["repeats"]
    found = _collect(measure_speed(rows, count, inducing, chunk, workers, repeats))
    console.print(speed_table(found, rows, inducing, workers))


@click.command()
@click.option("--only", default=",".join(PARTS), callback=common.among(PARTS), show_default=True)
@click.option("--quick", is_flag=True, help="Few rows, experts and inducing inputs.")
@click.option("--experts", default="", callback=common.numbers(int), help="Numbers M of experts.")
@click.option("--seeds", default=1, show_default=True, help="Draws of the data, or splits.")
@click.option("--lengthscales", default="", callback=common.numbers(float), help="Of ackley.")
@click.option(
    "--expert", default="sparse", callback=common.among(("sparse", "exact")), help="Of ackley."
)
@click.option(
    "--methods",
    default=",".join(predictions.METHODS),
    callback=common.among(predictions.METHODS),
    help="Of ackley and uci.",
)
@click.option("--noise", default=predictions.ACKLEY_NOISE, help="Variance on ackley's targets.")
@click.option("--rounds", type=int, help="Of training; default 200 for recovery, 100 for uci.")
@click.option("--training", default="fact", show_default=True, help="Of uci.")
@click.option("--data", default=",".join(UCI_EXPERTS), callback=common.among(UCI_EXPERTS))
@click.option("--rows", default=1_000_000, show_default=True, help="Of speed.")
@click.option(
    "--chunk", default=10_000, show_default=True, help="Rows of a chunk of speed's store."
)
@click.option("--workers", default=2, show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--figures", type=click.Path(file_okay=False, path_type=Path), help="Folder.")
def main(only: list[str], **options: Any) -> None:
    """Measure and print the tables."""
    logging.getLogger("daskgp").setLevel(logging.ERROR)  # paper's weights are ill-conditioned
    console = Console(width=220)
    if options["figures"]:
        options["figures"].mkdir(parents=True, exist_ok=True)
    work = {"ackley": run_ackley, "recovery": run_recovery, "uci": run_uci, "speed": run_speed}
    for part in only:
        work[part](console, options)


if __name__ == "__main__":
    main()
