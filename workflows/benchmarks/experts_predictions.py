"""What combined experts predict: the function of Ackley, and data of the UCI repository.

Parts of ``experts.py``, which says what each is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

import daskgp
from daskgp import ExpertsGP, kernels, metrics
from daskgp.plot import curves

PAPERS: dict[str, Any] = {"weights": "paper", "ridge": 1e-12}
"""The paper's weights; a ridge of 0 refuses singular systems."""
METHODS: dict[str, dict[str, Any]] = {
    "PoE": {"aggregation": "poe"},
    "gPoE": {"aggregation": "gpoe"},
    "BCM": {"aggregation": "bcm"},
    "rBCM": {"aggregation": "rbcm"},
    "grBCM": {"aggregation": "grbcm"},
    "NPAE": {"aggregation": "npae"},
    "optimal": {},
    "g = 0": {"shrinkage": 0.0},
    "g = 0.1": {"shrinkage": 0.1},
    "paper": {**PAPERS, "variance": "paper"},
    "paper linear": {**PAPERS, "variance": "linear"},
}
"""Settings of each method by its name in the tables; the last two differ in variance alone."""
SPARSE_ONLY = ("g = 0", "g = 0.1", "paper linear")
"""Not measured with exact experts, which have no shrinkage and a dear variance."""
FULL = "one GP"
SCORES = {"rmse": ("RMSE", ".4f"), "nlpd": ("NLPD", ".3f"), "seconds": ("seconds", ".2f")}
ACKLEY_VARIANCE, ACKLEY_NOISE = 1.0, 0.025
"""Hyper-parameters of [OPT] section 5.1.2; lengthscales are varied."""
PUBLISHED: dict[tuple[str, int], tuple[float, float | None]] = {
    ("pol", 4): (35.596, 6.293),
    ("pol", 10): (30.156, 5.387),
    ("pol", 20): (25.617, 6.124),
    ("elevators", 4): (0.253, 0.822),
    ("elevators", 10): (0.253, 0.822),
    ("elevators", 20): (0.254, 0.822),
    ("kin40k", 8): (0.906, 1.322),
    ("kin40k", 16): (0.816, 1.176),
    ("kin40k", 64): (0.727, 1.071),
    ("keggdirected", 8): (1.267, 1.592),
    ("keggdirected", 16): (1.178, 1.455),
    ("keggdirected", 64): (1.011, 1.285),
    ("protein", 8): (0.773, 1.279),
    ("protein", 16): (0.773, 1.279),
    ("protein", 64): (0.773, 1.278),
}
"""RMSE and NLPD of "opt" in [OPT] tables 2 and 3."""


class Rows(NamedTuple):
    """Inputs (n, d) and targets (n,)."""

    X: np.ndarray
    y: np.ndarray


def scored(model: Any, train: Rows, test: Rows) -> dict[str, float]:
    """Scores of predictions with noise, and the seconds of fit and prediction together."""
    began = time.perf_counter()
    mean, std = model.fit(*train).predict(test.X, return_std=True, include_noise=True)
    seconds = time.perf_counter() - began
    return {
        "rmse": metrics.rmse(test.y, mean),
        "nlpd": metrics.nlpd(test.y, mean, std**2),
        "seconds": seconds,
    }


def spread_table(rows: Sequence[dict], score: str, title: str) -> Table:
    """A score over the runs with each number of experts: its mean ± its spread, median seconds."""
    heading, form = SCORES[score]
    names = [name for name in (*METHODS, FULL) if any(name in row for row in rows)]
    table = Table(title=f"{heading}, {title}")
    for column in ("M", *names):
        table.add_column(column, justify="right")
    for count in _counts(rows):
        cells = []
        for name in names:
            middle, std = _over_runs(rows, count, name, score)
            spread = "" if score == "seconds" else f" ± {std:{form}}"
            cells.append("–" if np.isnan(middle) else f"{middle:{form}}{spread}")
        table.add_row(str(count), *cells)
    return table


def _counts(rows: Sequence[dict]) -> list[int]:
    return sorted({row["experts"] for row in rows})


def _over_runs(rows: Sequence[dict], count: int, name: str, score: str) -> tuple[float, float]:
    """Mean of a score or median of seconds, and standard deviation; NaN where no run has it."""
    found = [row[name][score] for row in rows if row["experts"] == count and name in row]
    if not found:
        return np.nan, np.nan
    middle = np.median(found) if score == "seconds" else np.mean(found)
    return float(middle), float(np.std(found))


# -- Ackley ----------------------------------------------------------------------------------


def ackley(X: np.ndarray) -> np.ndarray:
    """The function of [OPT] eq. 47 at the rows of X (n, d)."""
    far = np.exp(-0.2 * np.sqrt(np.mean(X**2, axis=1)))
    return -20 * far - np.exp(np.mean(np.cos(2 * np.pi * X), axis=1)) + 20 + np.e


def draw_ackley(n: int, noise: float, seed: int) -> Rows:
    """Rows drawn at random in the square, with noise of that variance."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return Rows(X, ackley(X) + np.sqrt(noise) * rng.standard_normal(n))


def grid(side: int) -> Rows:
    """Places of an even grid with the function there."""
    line = np.linspace(-1, 1, side)
    X = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    return Rows(X, ackley(X))


class Ackley(NamedTuple):
    """What is measured: rows, side of the test grid, inducing inputs, noise variance, methods."""

    rows: int = 10_000
    side: int = 50
    inducing: int = 128
    noise: float = ACKLEY_NOISE
    methods: Sequence[str] = tuple(METHODS)


def measure_ackley(
    problem: Ackley,
    expert: str,
    counts: Sequence[int],
    lengthscales: Sequence[float],
    seeds: Sequence[int],
) -> Iterator[dict[str, Any]]:
    """Scores of all methods, a row for each seed, lengthscale and number of experts."""
    test = grid(problem.side)
    for seed in seeds:
        train = draw_ackley(problem.rows, problem.noise, seed)
        for lengthscale in lengthscales:
            settings: dict[str, Any] = {
                "kernel": kernels.RBF(lengthscale, ACKLEY_VARIANCE),
                "noise_variance": ACKLEY_NOISE,
                "mean": "zero",
                "standardize": False,
                "optimizer": None,
                "progress": False,
            }
            full = {}
            if expert == "sparse":
                settings["inducing"] = train.X[: problem.inducing]  # rows are in random order
                full = {FULL: scored(daskgp.SGPR(**settings), train, test)}
            for count in counts:
                row: dict[str, Any] = {"expert": expert, "seed": seed, "lengthscale": lengthscale}
                row["experts"] = count
                for name in problem.methods:
                    if expert == "exact" and name in SPARSE_ONLY:
                        continue
                    model = ExpertsGP(
                        expert=expert,
                        n_experts=count,
                        partition="chunks",
                        **settings,
                        **METHODS[name],
                    )
                    row[name] = scored(model, train, test)
                yield {**row, **full}


def ackley_verdict(rows: Sequence[dict]) -> str:
    """Where optimal weights have the larger mean error."""
    lines = []
    for rival in (name for name in ("rBCM", "gPoE", "grBCM", "NPAE") if name in rows[0]):
        worse = [
            count
            for count in _counts(rows)
            if _over_runs(rows, count, "optimal", "rmse")[0]
            > _over_runs(rows, count, rival, "rmse")[0]
        ]
        where = ", ".join(map(str, worse)) or "none"
        lines.append(f"mean RMSE of optimal weights above that of {rival} at M: {where}")
    return "\n".join(lines)


def draw_ackley_figure(rows: Sequence[dict], path: Path) -> None:
    """Scores against the number of experts, without the paper's weights: they need other axes."""
    counts = _counts(rows)
    committees = (name for name in METHODS if "aggregation" in METHODS[name])
    names = [name for name in ("optimal", *committees) if name in rows[0]]
    panels = {
        heading: {
            name: np.array([_over_runs(rows, count, name, score)[0] for count in counts])
            for name in names
        }
        for score, (heading, _) in SCORES.items()
    }
    reference = None
    if FULL in rows[0]:
        means = {score: _over_runs(rows, counts[0], FULL, score)[0] for score in SCORES}
        reference = {SCORES[score][0]: value for score, value in means.items()}
    curves.tradeoff(counts, panels, name="experts", reference=reference, path=path)


# -- UCI -------------------------------------------------------------------------------------


class Uci(NamedTuple):
    """What is fitted: inducing inputs of each expert, training, its most rounds, and methods."""

    inducing: int = 128
    training: str = "fact"
    rounds: int = 100
    methods: Sequence[str] = tuple(METHODS)


def split(source: Rows, seed: int) -> tuple[Rows, Rows]:
    """Four fifths of the rows, drawn at random, and the rest."""
    order = np.random.default_rng(seed).permutation(len(source.y))
    parts = np.split(order, [round(0.8 * len(order))])
    train, test = (Rows(source.X[part], source.y[part]) for part in parts)
    return train, test


def measure_uci(
    problem: Uci, name: str, source: Rows, counts: Sequence[int], seeds: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Scores of all methods with the same hyper-parameters, a row a split and number of experts."""
    for seed in seeds:
        train, test = split(source, seed)
        middle, spread = train.y.mean(), train.y.std()
        known = np.full(len(test.y), middle), np.full(len(test.y), spread**2)
        trivial = {"rmse": metrics.rmse(test.y, known[0]), "nlpd": metrics.nlpd(test.y, *known)}
        for count in counts:
            settings: dict[str, Any] = {"n_experts": count, "random_state": seed, "progress": False}
            learner = ExpertsGP(
                kernels.RBF(ard=True),
                n_inducing=problem.inducing,
                training=problem.training,
                max_iter=problem.rounds,
                **settings,
            )
            began = time.perf_counter()
            learner.fit(*train)
            seconds = time.perf_counter() - began
            learned: dict[str, Any] = {
                "kernel": learner.kernel_,
                "noise_variance": learner.noise_variance_,
                "inducing": learner.inducing_,
                "optimizer": None,
            }
            row: dict[str, Any] = {"data": name, "seed": seed, "experts": count}
            row.update(train_s=seconds, iterations=len(learner.history_), trivial=trivial)
            for method in problem.methods:
                model = ExpertsGP(**settings, **learned, **METHODS[method])
                row[method] = scored(model, train, test)
            single = daskgp.SGPR(progress=False, **learned)
            yield {**row, FULL: scored(single, train, test)}


def uci_table(rows: Sequence[dict], score: str) -> Table:
    """A score of all methods by data and number of experts, beside the paper's."""
    heading, form = SCORES[score]
    table = Table(title=f"{heading}, units of the target, mean over splits")
    for column in ("data", "M", *METHODS, FULL, "trivial", "paper's opt", "ours <="):
        table.add_column(column, justify="left" if column == "data" else "right")
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        for count in _counts(own):
            means = {
                method: _over_runs(own, count, method, score)[0]
                for method in (*METHODS, FULL, "trivial")
            }
            printed = PUBLISHED.get((name, count), (None, None))[score == "nlpd"]
            told = "–" if printed is None else "yes" if means["optimal"] <= printed else "no"
            cells = ("–" if np.isnan(mean) else f"{mean:{form}}" for mean in means.values())
            table.add_row(name, str(count), *cells, "–" if printed is None else str(printed), told)
    return table


def as_json(row: dict[str, Any]) -> str:
    """A row on one line, with four digits."""
    exact = json.dumps(row)
    return json.dumps(json.loads(exact, parse_float=lambda text: float(f"{float(text):.4g}")))
