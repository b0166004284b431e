"""Computation-aware GPs and their rivals on UCI data, beside the paper's table.

    DASKGP_DATA=folder python workflows/benchmarks/cagp.py --out results.jsonl [--data bike]
    python workflows/benchmarks/cagp.py --out results.jsonl --table
    DASKGP_DATA=folder python workflows/benchmarks/cagp.py --data kin40k --methods cagp
        --splits 1 --actions 128,512 --supports 16,64,0 --iterations 12

Table 1 of [CAGP], Wenger et al. 2024: 90:10 splits, standardised targets, Matérn-3/2 with a
lengthscale per feature; mean and standard deviation over splits, ``noise`` and seconds are medians.
Scores are those at the end of training, which sees no test row; the paper's are those of the epoch,
rate and optimizer with the best test NLL.  GPyTorch, which it uses, keeps the noise variance above
1e-4 by default: no NLL is then below -3.686.

- ``cagp``: ``CaGP`` with learned actions, CaGP-Opt, by L-BFGS or ``--optimizer adam``.  Actions on
  ``--supports`` rows each, 0 for all rows, are trained on mini-batches with Adam.
- ``cagp-cg``: actions of conjugate gradients, chosen anew twice; the paper's at every step.
- ``cggp``: the mean of as many steps of conjugate gradients as there are actions.  The package's
  ``CGGP`` has no variance and no training, which the paper's has by stochastic estimates: its
  hyper-parameters are those of ``ExactGP`` on ``TAUGHT`` of the rows with noise of 1e-4 or more.
- ``svgp``: ``--steps`` of 1,024 rows with natural gradients; the paper's Adam takes 1,000 epochs.
- ``sgpr``: inducing inputs that are trained, as many iterations as ``cagp``; ``sgpr-fixed``: held.
- ``exact``: the exact GP.  It, ``cagp-cg`` and ``cggp`` have at most ``--sample`` rows.
"""

import time
from itertools import product
from statistics import mean, stdev
from typing import Any

import datasets
import harness

import daskgp
from daskgp import kernels

METHODS = ("cagp", "cagp-cg", "cggp", "svgp", "sgpr", "sgpr-fixed", "exact")
DENSE, TAUGHT = ("cagp-cg", "cggp", "exact"), 2_000
NUMBERS = (("coverage", ".3f"), ("iterations", ",.0f"), ("noise", ".1e"), ("fit_s", ",.0f"))
PAPER = {  # NLL and RMSE with their deviations, seconds on a V100
    ("bike", "exact"): ((-3.472, 0.012), (0.006, 0.007), 435),
    ("bike", "sgpr"): ((-3.017, 0.022), (0.009, 0.002), 250),
    ("bike", "svgp"): ((-2.256, 0.020), (0.020, 0.002), 401),
    ("bike", "cggp"): ((-1.952, 0.078), (0.024, 0.004), 126),
    ("bike", "cagp-cg"): ((-2.042, 0.024), (0.024, 0.002), 317),
    ("bike", "cagp"): ((-2.438, 0.038), (0.017, 0.001), 888),
    ("protein", "sgpr"): ((0.844, 0.006), (0.561, 0.005), 625),
    ("protein", "svgp"): ((0.851, 0.006), (0.564, 0.005), 1_039),
    ("protein", "cggp"): ((0.853, 0.006), (0.517, 0.004), 1_215),
    ("protein", "cagp-cg"): ((0.820, 0.006), (0.542, 0.004), 86),
    ("protein", "cagp"): ((0.829, 0.005), (0.545, 0.004), 828),
}


def keys(options: harness.Options) -> harness.Keys:
    sets = datasets.present(options.data)
    for split, name, method in product(range(options.splits), sets, options.methods):
        sizes = options.actions if method.startswith("c") else [options.inducing]
        most = filter(None, (options.rows, options.sample if method in DENSE else None))
        lists = {
            "data": [name],
            "method": [method],
            "size": [0] if method == "exact" else sizes,
            "support": options.supports if method == "cagp" else [0],
            "split": [split],
            "rows": [min(most, default=None)],
            "iterations": [options.steps if method == "svgp" else options.iterations],
        }
        yield from harness.runs(options, "optimizer dtype", **lists)


def measure(key: dict, options: harness.Options) -> dict:
    split = datasets.uci(key["data"], key["split"]).standardised(inputs=True).drawn(key["rows"])
    if key["method"] == "cggp":
        return {"n": len(split.y), **of_cggp(key, split).scored(split.y_test, "rmse")}
    model = model_of(key, len(split.y), options)
    found = harness.fitted(model, split).scored(split.y_test, "nlpd", "rmse", "coverage")
    noise = float(model.noise_variance_)
    return {"n": len(split.y), **found, "iterations": len(model.history_), "noise": noise}


def model_of(key: dict, n: int, options: harness.Options) -> Any:
    method, size, (most, dtype) = key["method"], key["size"], (key["iterations"], key["dtype"])
    shared: Any = {"kernel": kernels.Matern32(ard=True), "max_iter": most, "dtype": dtype}
    if method == "exact":
        return daskgp.ExactGP(**shared)
    if method == "svgp":
        return daskgp.SVGP(n_inducing=size, batch_rows=min(1_024, n), **shared)
    if method in ("sgpr", "sgpr-fixed"):
        return daskgp.SGPR(n_inducing=size, train_inducing=method == "sgpr", **shared)
    if method == "cagp-cg":
        return daskgp.CaGP(n_actions=size, actions="cg", **shared)
    adam = {"batch_rows": min(options.batch_rows, n)} if key["optimizer"] == "adam" else {}
    support = {"support": key["support"], **adam} if key["support"] else {}
    return daskgp.CaGP(n_actions=size, optimizer=key["optimizer"], **support, **shared)


def of_cggp(key: dict, split: datasets.Split) -> harness.Outcome:
    """Return the mean by conjugate gradients, with hyper-parameters from some of the rows."""
    shared: dict[str, Any] = {"standardize": False, "progress": False}
    few, began = split.drawn(min(TAUGHT, len(split.y) // 2)), time.perf_counter()
    kernel, limits = kernels.Matern32(ard=True), {"noise_variance": (1e-4, 1e2)}
    taught = daskgp.ExactGP(kernel, limits=limits, **shared).fit(few.X, few.y)
    noise, most = float(taught.noise_variance_), key["size"]
    model = daskgp.CGGP(taught.kernel_, noise_variance=noise, max_iter=most, **shared)
    model.fit(split.X, split.y)
    done = time.perf_counter()
    remarks = {"iterations": model.n_iter_, "residual": model.residual_, "noise": noise}
    return harness.Outcome(done - began, None, model.predict(split.X_test), remarks=remarks)


def table(records: list[dict], options: harness.Options) -> str:
    labels, lines = ("data", "method", "size", "support"), []
    alike = *labels, "rows", "iterations", "optimizer", "dtype"
    groups = harness.grouped(records, *alike).values()
    for middle, runs in zip(harness.medians(records, *alike), groups, strict=True):
        names = [str(middle["key"][label]) for label in labels]
        nll, rmse, seconds = PAPER.get((names[0], names[1]), ((), (), None))
        rest = [harness.cell(middle, *of) for of in NUMBERS] + [harness.cell({"s": seconds}, "s")]
        counts = [harness.cell(middle, "n"), str(middle["runs"])]
        scores = [*beside(runs, "nlpd", nll), *beside(runs, "rmse", rmse)]
        lines.append([*names, *counts, *scores, *rest])
    heads = ["rows", "splits", "NLL", "[CAGP]", "RMSE", "[CAGP]", *(name for name, _ in NUMBERS)]
    return harness.markdown([*labels, *heads, "[CAGP] s"], lines)


def beside(runs: list[dict], name: str, theirs: tuple[float, ...]) -> list[str]:
    """Return mean and standard deviation of a score here and in the paper."""
    values = [run[name] for run in runs if name in run]
    ours = (mean(values), stdev(values)) if len(values) > 1 else tuple(values)
    forms = ("–", "{:.3f}", "{:.3f} ({:.3f})")
    return [forms[len(pair)].format(*pair).replace("-", "−") for pair in (ours, theirs)]


harness.command(
    globals(),
    limit=None,
    data=datasets.UCI,
    methods=METHODS,
    splits=(5, 1),
    actions=([512], [12]),
    supports=[0],
    inducing=(1_024, 20),
    rows=(None, 300),
    sample=(4_000, 200),
    iterations=(100, 3),
    steps=(2_000, 20),
    optimizer="l-bfgs",
    batch_rows=4_000,
    dtype="float64",
)
