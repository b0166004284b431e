"""Show if AutoGP keeps its budget of time and its limit of memory, on generated tables.

    python workflows/benchmarks/budget.py --out results.jsonl [--repeats 4]
    python workflows/benchmarks/budget.py --out results.jsonl --table

``over`` is the time of the fit over the budget; no process may take more than 1,024 MiB.
"""

import time

import datasets
import harness

import daskgp

CASES = {
    "300 x 2 in 20 s": (300, 2, 20.0),
    "3000 x 3 in 20 s": (3_000, 3, 20.0),
    "8000 x 8 in 30 s": (8_000, 8, 30.0),
    "20000 x 3 in 30 s": (20_000, 3, 30.0),
    "60000 x 3 in 45 s": (60_000, 3, 45.0),
}
MEMORY = 2**30


def keys(options: harness.Options) -> harness.Keys:
    for repeat in range(options.repeats):
        yield from harness.runs(options, "rows", case=options.cases, repeat=[repeat])


def measure(key: dict, options: harness.Options) -> dict:
    rows, features, budget = CASES[key["case"]]
    X, y = datasets.sines(key["rows"] or rows, features, key["repeat"])
    daskgp.SGPR(progress=False).fit(X[:100], y[:100])
    model = daskgp.AutoGP(
        time_budget=budget, memory=MEMORY, random_state=key["repeat"], progress=False
    )
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    return {
        "remark": f"{model.chosen_.label}, {model.chosen_.kernel}",
        "over": seconds / budget,
        "fit_s": seconds,
    }


table = harness.reporting("case repeat", "fit_s over processor_s largest_mib")
harness.command(
    globals(),
    cases=CASES,
    repeats=(4, 1),
    rows=(None, 200),
)
