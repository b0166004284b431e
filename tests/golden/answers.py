"""What a fitted model says at fixed places: arrays by name, for golden stores and their test."""

import warnings

import numpy as np

from daskgp import metrics
from daskgp.errors import DaskgpError

LEVELS = (0.05, 0.5, 0.95)


def places(model, rows):
    """Five places among the rows of a golden model, one beyond them, and two close together."""
    T = np.random.default_rng(5).uniform(0.2, 2.8, (7, model.n_features_in_))
    T[5] += 4.0
    T[6] = T[0] + 0.01
    codes = (rows["X"] == np.round(rows["X"])).all(0)  # of levels, which are those of the rows
    T[:, codes] = np.clip(np.round(T[:, codes]), 0, rows["X"][:, codes].max(0))
    return T


def targets(model, n):
    """Values to score predictions against, of the kind that the model takes."""
    y = np.random.default_rng(6).uniform(0.5, 2.0, (n, model.solved_.n_targets))
    likelihood = str(getattr(model, "likelihood", ""))
    if likelihood.startswith("bernoulli"):
        y = np.round(y / 2)
    elif likelihood == "poisson":
        y = np.round(y)
    return y[:, 0] if model.solved_.vector_target else y


def _moments(model, T, noise, _):
    mean, std = model.predict(T, return_std=True, include_noise=noise)
    return {"mean": mean, "std": std}


def _quantiles(model, T, noise, _):
    return {"q": model.predict(T, quantiles=LEVELS, include_noise=noise)[1]}


def _scores(model, T, *_):
    y = targets(model, len(T))
    mean, std = model.predict(T, return_std=True, include_noise=True)
    found = {"r2": model.score(T, y), "rmse": metrics.rmse(y, mean)}
    if model.solved_.outer(True).keeps_moments:
        found |= {"nlpd": metrics.nlpd(y, mean, std), "crps": metrics.crps(y, mean, std)}
    return found


def _loo(model, T, _, rows):
    mean, std = model.loo(**rows)
    return {"mean": mean, "std": std}


def _exceedance(model, T, include_noise, *_):
    joint = getattr(model, "targets", "") == "joint"
    limit = [1.0] * model.solved_.n_targets if joint else 1.0
    return {"p": model.predict_exceedance(T, limit, include_noise=include_noise)}


ASKED = {
    "plain": lambda model, T, *_: {"mean": model.predict(T)},
    "moments": _moments,
    "quantiles": _quantiles,
    "covariance": lambda m, T, n, _: {"c": m.predict(T, return_cov=True, include_noise=n)[1]},
    "exceedance": _exceedance,
    "average": lambda m, T, n, _: {"both": m.predict_average(T, include_noise=n)},
    "probabilities": lambda m, T, *_: {"p": m.predict_proba(T)},
    "samples": lambda m, T, *_: {"y": m.sample_y(T, 3, random_state=2)},
    "paths": lambda m, T, *_: {"f": m.sample_paths(3, random_state=3)(T)},
    "scores": _scores,
    "evidence": lambda m, *_: {"value": m.log_marginal_likelihood()},
    "loo": _loo,
}
NOISY = ("moments", "quantiles", "covariance", "exceedance", "average")
QUESTIONS = (*ASKED, *(f"{name}+noise" for name in NOISY))


def answers(model, question, rows):
    """Return what a model answers to a question; ``rows`` are some that it was fitted to."""
    name, _, noise = question.partition("+")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ASKED[name](model, places(model, rows), bool(noise), rows)
    return {f"{question}/{key}": np.asarray(value, np.float64) for key, value in found.items()}


def answered(model, rows):
    """Return the answers to all questions that a model does not refuse."""
    found = {}
    for question in QUESTIONS:
        try:
            found |= answers(model, question, rows)
        except (DaskgpError, AttributeError, TypeError):
            continue  # not asked of this model later on
    return found
