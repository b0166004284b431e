"""RMSE and seconds against the rows of LMA, PIC, a sparse spectrum and the exact GP.

    DASKGP_DATA=folder python workflows/benchmarks/lma_rows.py --out results.jsonl
    python workflows/benchmarks/lma_rows.py --out results.jsonl --table

Tables 1 and 3 and figure 2 of [LMA], Low et al. 2015, on other data: standardised targets and
inputs, a squared-exponential kernel with a lengthscale per feature.  Its hyper-parameters are
learned once per set, by the exact GP on ``--learned-rows`` drawn rows, and all methods have them:
what differs is the approximation.  Places to predict are drawn, too.

- ``rows``: each method against the rows drawn of a set; the exact GP up to ``--exact-rows``.
- ``trade``: LMA against support inputs and blocks nearby (Markov order 0 is PIC), as many rows as
  the second of ``--rows`` of the first set.
- ``workers``: LMA on all rows of the first set in chunks on disk, on 1, 2 and 4 worker processes.
"""

import json
import time
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np

import daskgp

DATA = ("kin40k", "protein", "stations", "air", "terrain")
PARTS = ("rows", "trade", "workers")
METHODS = ("lma", "pic", "ssgp", "exact")


def keys(options: harness.Options) -> harness.Keys:
    present = datasets.present(options.data)
    if "rows" in options.parts:
        for method in options.methods:
            most = options.exact_rows if method == "exact" else np.inf
            rows = [n for n in options.rows if n <= most]
            lists = {"data": present, "rows": rows, "method": [method]}
            yield from harness.runs(options, part=["rows"], **lists)
    first = {"data": present[:1], "method": ["lma"]}
    if "trade" in options.parts:
        sizes = {"support": options.supports, "order": options.orders}
        yield from harness.runs(options, part=["trade"], rows=options.rows[1:2], **first, **sizes)
    if "workers" in options.parts:
        workers = {"rows": options.rows[-1:], "workers": options.workers}
        yield from harness.runs(options, part=["workers"], **first, **workers)


def measure(key: dict, options: harness.Options) -> dict:
    split = datasets.table(key["data"]).standardised(inputs=True)
    few = np.sort(np.random.default_rng(1).permutation(len(split.y_test))[: options.places])
    split = split._replace(X_test=split.X_test[few], y_test=split.y_test[few])
    learned = hyperparameters(split, key["data"], options)
    rows = split.drawn(key["rows"])
    model = model_of(key, learned, len(rows.y), options)
    if key["part"] == "workers":
        found = on_workers(model, rows, key["workers"], options.folder)
    else:
        found = harness.fitted(model, rows)
    scores = found.scored(split.y_test, "rmse", "nlpd", "coverage")
    return {"n": len(rows.y), "places": len(split.y_test), **scores}


def hyperparameters(split: datasets.Split, name: str, options: harness.Options) -> dict[str, Any]:
    """Return kernel and noise variance, which the first run of a set learns and keeps."""
    path = options.folder / f"learned-{name}-{options.learned_rows}.json"
    if not path.exists():
        few = split.drawn(options.learned_rows)
        model = daskgp.ExactGP("rbf(ard=true)", progress=False).fit(few.X, few.y)
        noise = float(np.ravel(model.noise_variance_)[0])
        path.write_text(json.dumps({"kernel": model.kernel_.to_dict(), "noise_variance": noise}))
    found = json.loads(path.read_text())
    return {**found, "kernel": daskgp.kernels.from_dict(found["kernel"])}


def model_of(key: dict, learned: dict, rows: int, options: harness.Options) -> Any:
    """Return the estimator of a run, which trains nothing."""
    shared = {**learned, "optimizer": None, "progress": False, "standardize": False}
    method = key["method"]
    if method == "exact":
        return daskgp.ExactGP(**shared)
    if method == "ssgp":
        return daskgp.SparseSpectrumGP(n_spectral=min(options.spectral, rows), **shared)
    if method == "pic" or key.get("order") == 0:
        wide = min(key.get("support", options.pic_support), rows // 2)
        return daskgp.PIC(n_support=wide, **shared)
    few = min(key.get("support", options.support), rows // 2)
    return daskgp.LMA(n_support=few, markov_order=key.get("order"), **shared)


def on_workers(model: Any, rows: datasets.Split, workers: int, folder: Path) -> harness.Outcome:
    """Fit a store of the rows and predict chunks of the places on a cluster."""
    import dask.array as da

    path = folder / f"workers-{len(rows.y)}.zarr"
    if not path.exists():
        daskgp.prepare((rows.X, rows.y), str(path), progress=False)
    with daskgp.connect(n_workers=workers, memory_limit="4GiB"):
        began = time.perf_counter()
        model.fit(*daskgp.open_dataset(str(path)))
        done = time.perf_counter()
        places = da.from_array(rows.X_test, (1_000, -1))
        mean, std = da.compute(*model.predict(places, return_std=True, include_noise=True))
    return harness.Outcome(done - began, time.perf_counter() - done, mean, std**2)


def table(records: list[dict], options: harness.Options) -> str:
    """Return a table per part, speedups beside the run of one worker."""
    shown, parts = [], {part: runs for (part,), runs in harness.grouped(records, "part").items()}
    cost = [run for run in parts.get("workers", []) if "fit_s" in run]
    one = next((took(run) for run in cost if run["key"]["workers"] == 1), np.nan)
    for run in cost:
        run["speedup"] = one / took(run)
    labels_of = {"rows": "data rows method", "trade": "support order", "workers": "workers"}
    for part, labels in labels_of.items():
        numbers = "rmse nlpd coverage fit_s predict_s peak_mib"
        numbers += " speedup" if part == "workers" else ""
        shown.append(harness.report(parts.get(part, []), labels, numbers))
    return "\n\n".join(shown)


def took(run: dict) -> float:
    """Return the seconds of fit and prediction."""
    return run["fit_s"] + run["predict_s"]


harness.command(
    globals(),
    data=DATA,
    parts=PARTS,
    methods=METHODS,
    rows=([2_000, 8_000, 32_000, 100_000], [200, 400]),
    exact_rows=(16_000, 200),
    learned_rows=(2_000, 100),
    support=(256, 16),
    pic_support=(1_024, 32),
    spectral=(1_024, 32),
    places=(3_000, 100),
    supports=([64, 256, 1_024], [16]),
    orders=([0, 1, 3, 7], [0, 1]),
    workers=([1, 2, 4], [1, 2]),
)
