"""Computation-aware GPs on UCI data: how well they predict, and what bounded supports cost.

    DASKGP_DATA=folder python workflows/benchmarks/cagp.py [--data bike] [--actions 512]
    DASKGP_DATA=folder python workflows/benchmarks/cagp.py --data kin40k
        --methods cagp --actions 128,512 --supports 16,64,0 --iterations 12

Split 0, targets standardised: ``CaGP`` with learned sparse actions, trained by L-BFGS on all rows,
and ``SGPR`` with trained inducing inputs, Matérn-3/2 with a lengthscale per feature.  Actions on
``--supports`` rows each, 0 for all rows, are trained on mini-batches with ``--optimizer adam``.
"""

from itertools import product

import datasets
import harness

import daskgp
from daskgp import kernels

METHODS = ("cagp", "sgpr")


def keys(options: harness.Options) -> harness.Keys:
    sizes = {"cagp": options.actions, "sgpr": [options.inducing]}
    for name, method in product(datasets.present(options.data), options.methods):
        supports = options.supports if method == "cagp" else [0]
        lists = {"data": [name], "method": [method], "size": sizes[method], "support": supports}
        yield from harness.runs(options, "rows iterations optimizer", **lists)


def measure(key: dict, options: harness.Options) -> dict:
    split = datasets.table(key["data"]).standardised().drawn(key["rows"])
    kernel, training = kernels.Matern32(ard=True), {"max_iter": key["iterations"]}
    if key["method"] == "sgpr":
        model = daskgp.SGPR(kernel, n_inducing=key["size"], train_inducing=True, **training)
    else:
        training["optimizer"] = key["optimizer"]
        if key["optimizer"] == "adam":
            training["batch_rows"] = min(options.batch_rows, len(split.y))
        if key["support"]:
            training["support"] = key["support"]
        model = daskgp.CaGP(kernel, n_actions=key["size"], **training)
    found = harness.fitted(model, split).scored(split.y_test, "nlpd", "rmse", "coverage")
    last = model.history_[-1] if model.history_ else {"iteration": 0, "evaluations": 0}
    counts = {"iterations": last["iteration"], "evaluations": last["evaluations"]}
    return {"n": len(split.y), **found, **counts, "objective": model.objective_}


table = harness.reporting(
    "data method size support",
    "n nlpd rmse coverage fit_s predict_s iterations evaluations peak_mib",
)
harness.command(
    globals(),
    limit=None,
    data=harness.Some(datasets.UCI, ("bike", "protein", "keggdirected")),
    methods=METHODS,
    actions=([512], [12]),
    supports=[0],
    inducing=(1_024, 20),
    rows=(None, 300),
    iterations=(100, 3),
    optimizer="l-bfgs",
    batch_rows=4_000,
)
