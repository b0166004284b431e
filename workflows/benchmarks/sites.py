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

``density`` is the mean log density of new observations, ``truth`` that given the true f.
"""

import time
from typing import Any

import harness
import numpy as np

import daskgp
from daskgp import likelihoods

DENSITY, LENGTH, VARIANCE, MEAN, WAVES = 25.0, 1.0, 1.44, 0.3, 3_000
PARAMETERS = {"negative-binomial": 2.0, "gamma": 2.0}
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
    target, rng = key["target"], np.random.default_rng(key["seed"])
    n, truth = key["rows"], true_likelihood(target)
    places = max(n // 10, 20)
    X = rng.uniform(0.0, np.sqrt(n / DENSITY), (n + places, 2))
    f = field(X, rng)
    y = np.asarray(truth.sample(f, rng), np.float64)
    solve = by_gpboost if key["method"] == "gpboost" else by_daskgp
    found = solve(key, X[:n], y[:n], X[n:], options.threads)
    mean, variance, likelihood = (found.pop(name) for name in ("mean", "variance", "likelihood"))
    at = y[n:, None], mean[:, None], variance
    inside = np.abs(mean - f[n:]) < 1.96 * np.sqrt(variance)
    return {
        "n": n,
        **found,
        "rmse_f": float(np.sqrt(np.mean((mean - f[n:]) ** 2))),
        "coverage_f": float(inside.mean()),
        "density": float(likelihood.log_density(*at).mean()),
        "truth": float(truth.log_p(y[n:, None], f[n:, None]).value.mean()),
    }


def true_likelihood(target: str) -> Any:
    logs = np.log([PARAMETERS[target]]) if target in PARAMETERS else None
    return likelihoods.by_name(target, logs)


def field(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a sum of random waves with the spectrum of a Matérn-3/2 kernel."""
    w = rng.standard_normal((WAVES, 2)) * np.sqrt(3.0 / rng.chisquare(3, (WAVES, 1))) / LENGTH
    phase, f = rng.uniform(0, 2 * np.pi, WAVES), np.zeros(len(X))
    for i in range(0, WAVES, 100):
        f += np.cos(X @ w[i : i + 100].T + phase[i : i + 100]).sum(axis=1)
    return np.asarray(MEAN + np.sqrt(2 * VARIANCE / WAVES) * f)


def by_daskgp(key: dict, X: np.ndarray, y: np.ndarray, Z: np.ndarray, _: int) -> dict[str, Any]:
    model = OURS[key["method"]]("matern32()", likelihood=key["target"], progress=False)
    began = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    mean, std = model.predict(Z, return_std=True)
    done = time.perf_counter()
    values = dict(
        zip(model.kernel_.parameter_names, np.exp(model.kernel_.log_parameters), strict=True)
    )
    return {
        "fit_s": fitted - began,
        "predict_s": done - fitted,
        "lengthscale": float(values["lengthscale"]),
        "variance_f": float(values["variance"]),
        "mean": mean,
        "variance": std**2,
        "likelihood": model.likelihood_,
    }


def by_gpboost(
    key: dict, X: np.ndarray, y: np.ndarray, Z: np.ndarray, threads: int
) -> dict[str, Any]:
    import gpboost

    began = time.perf_counter()
    model = gpboost.GPModel(
        gp_coords=X,
        cov_function="matern",
        cov_fct_shape=1.5,
        likelihood=PEER[key["target"]],
        gp_approx="vecchia",
        num_neighbors=20,
        num_parallel_threads=threads,
    )
    model.fit(y=y, X=np.ones((len(y), 1)))
    fitted = time.perf_counter()
    model.set_prediction_data(num_neighbors_pred=60)
    found = model.predict(
        gp_coords_pred=Z, X_pred=np.ones((len(Z), 1)), predict_var=True, predict_response=False
    )
    done = time.perf_counter()
    parameters = np.ravel(model.get_cov_pars(std_err=False))
    own = (
        np.ravel(list(model.get_aux_pars(std_err=False).values()))
        if key["target"] in PARAMETERS
        else ()
    )
    logs = np.log(np.asarray(own, float)[:1]) if len(own) else None
    return {
        "fit_s": fitted - began,
        "predict_s": done - fitted,
        "variance_f": float(parameters[0]),
        "lengthscale": float(parameters[1]),
        "mean": np.asarray(found["mu"]),
        "variance": np.asarray(found["var"]),
        "likelihood": likelihoods.by_name(key["target"], logs),
    }


table = harness.reporting(
    "target method n",
    "rmse_f coverage_f density truth variance_f lengthscale fit_s predict_s processor_s peak_mib "
    "runs",
)
harness.command(
    globals(),
    targets=harness.Some(tuple(PEER), ("poisson",)),
    methods=harness.Some((*OURS, "gpboost"), ("sgpr",)),
    seeds=(1, 1),
    rows=(50_000, 200),
)
