"""Time and score likelihoods by Gaussian sites, beside GPBoost's Laplace approximation.

    python workflows/benchmarks/sites.py --out results.jsonl
    python workflows/benchmarks/sites.py --out results.jsonl --targets poisson --methods vecchia
    python workflows/benchmarks/sites.py --out results.jsonl --table

Rows lie at random in a square with 25 of them per squared lengthscale of a Matérn-3/2 field of
variance 1.44 and mean 0.3; what is observed given f is Bernoulli (logit), Poisson, negative
binomial (r = 2) or Gamma (shape 2).  A tenth as many places are predicted.  ``vecchia``, ``lma``
and ``sgpr`` are estimators of daskgp with a Matérn-3/2 kernel alone; ``gpboost`` is its
Vecchia approximation with 20 neighbours to fit, 60 to predict and Laplace's approximation, an
intercept, and default settings else.  All train hyper-parameters and the likelihood's parameters.

``wet``, ``hot``, ``hot-overdispersed`` and ``rain`` are days of stations in DASKGP_DATA, wet or not
or how much rain, and the number of hot ones in July per year (exposure: days observed), by
east, north, height and day or year; of them all rows are taken, and each column has a lengthscale.

``density`` is the mean log density of new observations, ``truth`` that given the true f.
"""

import time
from typing import Any

import harness
import numpy as np
from datasets import kinds

import daskgp
from daskgp import likelihoods

PEER = {
    "bernoulli-logit": "bernoulli_logit",
    "poisson": "poisson",
    "negative-binomial": "negative_binomial",
    "gamma": "gamma",
}
OURS = {"vecchia": daskgp.VecchiaGP, "lma": daskgp.LMA, "sgpr": daskgp.SGPR}


def keys(options: harness.Options) -> harness.Keys:
    lists = {"target": options.targets, "method": options.methods}
    return harness.runs(options, "rows", **lists, seed=range(options.seeds))


def measure(key: dict, options: harness.Options) -> dict:
    target, rng, n = key["target"], np.random.default_rng(key["seed"]), key["rows"]
    if target in kinds.REAL:
        rows = kinds.of_stations(target, rng)
        n = len(rows.y) - len(rows.y) // 10
    else:
        rows = kinds.drawn(target, n + max(n // 10, 20), rng)
    solve = by_gpboost if key["method"] == "gpboost" else by_daskgp
    found = solve(key, rows, n, options.threads)
    mean, variance, likelihood = (found.pop(name) for name in ("mean", "variance", "likelihood"))
    y, own = rows.y[n:, None], {} if rows.exposure is None else {"exposure": rows.exposure[n:]}
    density = likelihood.with_columns(own).log_density(y, mean[:, None], variance)
    row = {"n": n, **found, "density": float(density.mean())}
    if rows.f is not None:
        f, truth = rows.f[n:], kinds.likelihood(target)
        row["rmse_f"] = float(np.sqrt(np.mean((mean - f) ** 2)))
        row["coverage_f"] = float((np.abs(mean - f) < 1.96 * np.sqrt(variance)).mean())
        row["truth"] = float(truth.log_p(y, f[:, None]).value.mean())
    return row


def by_daskgp(key: dict, rows: kinds.Kind, n: int, _: int) -> dict[str, Any]:
    kernel = "matern32()" if rows.f is not None else "matern32(ard=true)"
    model = OURS[key["method"]](kernel, likelihood=rows.likelihood, progress=False)
    own = {} if rows.exposure is None else {"exposure": rows.exposure[:n]}
    began = time.perf_counter()
    model.fit(rows.X[:n], rows.y[:n], **own)
    fitted = time.perf_counter()
    mean, std = model.predict(rows.X[n:], return_std=True)
    done = time.perf_counter()
    values = dict(
        zip(model.kernel_.parameter_names, np.exp(model.kernel_.log_parameters), strict=True)
    )
    return {
        "fit_s": fitted - began,
        "predict_s": done - fitted,
        "lengthscale": float(values.get("lengthscale", np.nan)),
        "variance_f": float(values["variance"]),
        "mean": mean,
        "variance": std**2,
        "likelihood": model.likelihood_,
    }


def by_gpboost(key: dict, rows: kinds.Kind, n: int, threads: int) -> dict[str, Any]:
    import gpboost

    X, one = rows.X, np.ones((len(rows.y), 1))
    own = {} if rows.exposure is None else {"offset": np.log(rows.exposure[:n])}
    began = time.perf_counter()
    model = gpboost.GPModel(
        gp_coords=X[:n],
        cov_function="matern" if rows.f is not None else "matern_ard",
        cov_fct_shape=1.5,
        likelihood=PEER[rows.likelihood],
        gp_approx="vecchia",
        num_neighbors=20,
        num_parallel_threads=threads,
    )
    model.fit(y=rows.y[:n], X=one[:n], **own)
    fitted = time.perf_counter()
    model.set_prediction_data(num_neighbors_pred=60)
    more = {} if rows.exposure is None else {"offset_pred": np.zeros(len(rows.y) - n)}
    found = model.predict(
        gp_coords_pred=X[n:], X_pred=one[n:], predict_var=True, predict_response=False, **more
    )
    done = time.perf_counter()
    parameters = np.ravel(model.get_cov_pars(std_err=False))
    logs = None
    if rows.likelihood in kinds.PARAMETERS:
        logs = np.log(np.ravel(np.asarray(model.get_aux_pars(std_err=False), float))[:1])
    return {
        "fit_s": fitted - began,
        "predict_s": done - fitted,
        "variance_f": float(parameters[0]),
        "lengthscale": float(parameters[1]) if rows.f is not None else np.nan,
        "mean": np.asarray(found["mu"]),
        "variance": np.asarray(found["var"]),
        "likelihood": likelihoods.by_name(rows.likelihood, logs),
    }


table = harness.reporting(
    "target method n",
    "rmse_f coverage_f density truth variance_f lengthscale fit_s predict_s processor_s peak_mib "
    "runs",
)
harness.command(
    globals(),
    targets=harness.Some((*PEER, *kinds.REAL), ("poisson",)),
    methods=harness.Some((*OURS, "gpboost"), ("sgpr",)),
    seeds=(1, 1),
    rows=(50_000, 200),
)
