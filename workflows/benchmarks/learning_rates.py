"""What the learning rate of Adam does to the scores, beside a search that has none.

    DASKGP_DATA=folder python workflows/benchmarks/learning_rates.py --out results.jsonl
    python workflows/benchmarks/learning_rates.py --out results.jsonl --table

Figure S4 of [CAGP], Wenger et al. 2024, on ``--rows`` drawn rows of UCI sets: standardised targets,
Matérn-3/2 with a lengthscale per feature, 64 actions, 128 inducing inputs that are trained; scales
and variance begin at 1 and the noise variance at 0.1.  ``search`` is the estimator's own, without a
rate (the trust region of ``exact``, L-BFGS of the others), or the rate of Adam, which falls to a
tenth in ``CaGP`` and stays in ``SGPR`` and ``ExactGP``.  All may make so many ``--iterations``, and
actions of conjugate gradients are chosen anew after so many; ``svgp`` takes four times as many
steps of half of the rows, by natural gradients beside Adam, and has no other search.  Numbers are
medians over splits.  A run that fails outright says why.
"""

from typing import Any

import datasets
import harness

import daskgp
from daskgp import errors, kernels

METHODS = ("cagp", "cagp-cg", "svgp", "sgpr", "exact")
OWN = "default"
SEARCHES = (OWN, "1", "0.1", "0.01", "0.001")
UNENDING = 1e-9
"""Gain in nats below which Adam stops: only where it gains no more."""


def keys(options: harness.Options) -> harness.Keys:
    for method in options.methods:
        searches = [s for s in options.searches if (method, s) != ("svgp", OWN)]
        lists = {"data": datasets.present(options.data), "method": [method], "search": searches}
        split = range(options.splits)
        yield from harness.runs(options, "rows iterations", split=split, **lists)


def measure(key: dict, options: harness.Options) -> dict:
    split = datasets.uci(key["data"], key["split"]).standardised().drawn(key["rows"])
    model = model_of(key, split.X.std(axis=0), options)
    try:
        found = harness.fitted(model, split)
    except errors.NumericalError as error:
        return {"n": len(split.y), "remark": str(error)}
    scores = found.scored(split.y_test, "nlpd", "rmse", "coverage")
    noise = float(model.noise_variance_)
    return {"n": len(split.y), **scores, "iterations": len(model.history_), "noise": noise}


def model_of(key: dict, scales: Any, options: harness.Options) -> Any:
    method, steps = key["method"], key["iterations"]
    kernel = kernels.Matern32(tuple(scales), 1.0, ard=True)
    shared: dict[str, Any] = {"kernel": kernel, "max_iter": steps}
    if key["search"] != OWN:
        shared |= {"optimizer": "adam", "learning_rate": float(key["search"]), "tol": UNENDING}
    if method == "exact":
        return daskgp.ExactGP(**shared)
    if method == "sgpr":
        return daskgp.SGPR(n_inducing=options.inducing, train_inducing=True, **shared)
    if method == "svgp":
        del shared["tol"]
        shared |= {"max_iter": 4 * steps, "batch_rows": key["rows"] // 2}
        return daskgp.SVGP(n_inducing=options.inducing, **shared)
    actions = "cg" if method == "cagp-cg" else "sparse"
    return daskgp.CaGP(n_actions=options.actions, actions=actions, **shared)


def table(records: list[dict], options: harness.Options) -> str:
    middle = harness.medians(records, "data", "method", "search")
    down = {name: sorted({r["key"][name] for r in middle}) for name in ("data", "method")}
    parts = [harness.tables(middle, "nlpd rmse noise iterations fit_s", down, search=SEARCHES)]
    parts += [f"{record['key']}: {record['remark']}" for record in records if "remark" in record]
    return "\n\n".join(parts)


harness.command(
    globals(),
    limit=None,
    data=harness.Some(datasets.UCI, ("bike", "protein")),
    methods=METHODS,
    searches=SEARCHES,
    splits=(3, 1),
    rows=(1_000, 100),
    iterations=(250, 3),
    actions=(64, 8),
    inducing=(128, 8),
)
