"""Cost of reading the rows of a step from a store: the same fits with rows in memory, in turn.

    python workflows/benchmarks/reading.py [--rows 1000000]

``SVGP`` with 1,024 inducing inputs and ``DecoupledGP`` with 4,096 and 128 functions, float32.
"""

import datasets
import harness
import numpy as np

import daskgp

METHODS = {
    "svgp": (daskgp.SVGP, {"n_inducing": 1_024}),
    "decoupled": (daskgp.DecoupledGP, {"n_mean": 4_096, "n_covariance": 128}),
}


def keys(options: harness.Options) -> harness.Keys:
    places, runs = ("memory", "store"), range(options.repeats)
    return harness.runs(options, "rows", method=METHODS, run=runs, where=places)


def measure(key: dict, options: harness.Options) -> dict:
    sizes = key["rows"], options.features, options.chunk
    X, y = daskgp.open_dataset(datasets.store(options.folder, datasets.smooth, *sizes))
    if key["where"] == "memory":
        X, y = np.asarray(X), np.asarray(y)
    kind, settings = METHODS[key["method"]]
    model = kind(
        "matern32(ard=true)",
        **harness.lowered(settings, key["rows"] // 2),
        batch_rows=options.batch_rows,
        block_rows=options.chunk,
        max_iter=10 + options.steps,
        dtype="float32",
        progress=False,
    )
    seconds, marks = harness.seconds_of(lambda: model.fit(X, y)), harness.marks(model)
    times = {**harness.step_seconds(marks), "setup_s": seconds - marks[-1]}
    return {**times, "objective": model.objective_}


def table(records: list[dict], options: harness.Options) -> str:
    """Return medians over the runs, and the share of a step from a store that reading costs."""
    rows = harness.medians(records, "method", "where", "rows")
    for row in rows:
        held = next((r for r in rows if r["key"] == {**row["key"], "where": "memory"}), {})
        if row["key"]["where"] == "store" and "mean_s" in row and "mean_s" in held:
            row["share"] = 1 - held["mean_s"] / row["mean_s"]
            if held["objective"] != row["objective"]:
                row["remark"] = "other numbers than from memory"
    return harness.report(rows, "method where rows", "mean_s step_s share setup_s peak_mib runs")


harness.command(
    globals(),
    rows=(1_000_000, 400),
    features=(8, 3),
    chunk=(20_000, 200),
    batch_rows=(1_024, 100),
    steps=(640, 5),
    repeats=(2, 1),
)
