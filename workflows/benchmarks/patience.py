"""Show how far AutoGP is behind the best single method that an expert finds in ten times the time.

    DASKGP_DATA=folder python workflows/benchmarks/patience.py --out results.jsonl [--sets a,b]
    python workflows/benchmarks/patience.py --out results.jsonl --table

Sets are those of ``datasets/varied.py``: ten tables, ten fields, five series.  AutoGP has a budget
and a thread, and is told what predictions are for and, in gaps, of some of the places.  The expert
tries methods with settings for that kind of data, and is given the best of them by the test rows
themselves, for each score another one: more than any expert has.  The table has the scores of
AutoGP, by how much they are behind, and when the first trial had ended, from which Ctrl-C makes an
answer.  Budgets are processor seconds, which other work on the machine does not lengthen.
"""

import logging
import sys
import time
from types import SimpleNamespace
from typing import Any

import datasets
import harness
from datasets.varied import SOURCES, VARIED, Varied, varied
from peers import expert

import daskgp

PROMISED = 0.02
"""Share by which AutoGP is to be behind at most."""
CLOCK = SimpleNamespace(
    **dict.fromkeys(("monotonic", "perf_counter", "process_time"), time.process_time)
)
"""Clock of searches: processor seconds, which other work on the machine does not lengthen."""


def keys(options: harness.Options) -> harness.Keys:
    known = datasets.present(SOURCES.get(name, name) for name in options.sets)
    for name in (name for name in options.sets if SOURCES.get(name, name) in known):
        tried = [f"auto-{budget:g}" for budget in options.budgets] if options.auto else []
        tried += expert.TRIED[name] if options.expert else ()
        yield from harness.runs(options, "rows", set=[name], method=tried)


def chosen(own: Varied, budget: float) -> tuple[Any, dict[str, Any]]:
    """Return AutoGP's model, and what it chose and when it had its first answer."""
    from daskgp.choose import auto, trials
    from daskgp.train import callbacks, optimizers

    for module in (auto, trials, callbacks, optimizers):
        module.time = CLOCK  # type: ignore[attr-defined]
    ends: list[float] = []
    handler = logging.Handler()
    handler.emit = lambda record: ends.append(time.process_time())  # type: ignore[method-assign]
    handler.addFilter(lambda r: str(r.msg).startswith("trial") and "failed" not in r.msg)
    logging.getLogger("daskgp").addHandler(handler)
    logging.getLogger("daskgp").setLevel(logging.INFO)
    places = own.split.drawn_places(2_000) if own.task == "gaps" else None
    model = daskgp.AutoGP(time_budget=budget, progress=False, **own.asked)  # type: ignore[arg-type]
    began = time.process_time()
    model.fit(own.split.X, own.split.y, places=places)
    taken = time.process_time() - began
    print(model.leaderboard_, *model.findings_, f"{taken:.1f} s", sep="\n", file=sys.stderr)
    best = model.chosen_
    found = {"remark": f"{best.label}, {best.kernel}", "over": taken / budget}
    return model.best_, found | {"first_s": ends[0] - began if ends else taken}


def measure(key: dict, options: harness.Options) -> dict:
    own = varied(key["set"], key["rows"], options.folder)
    split, unit, method = own.split, own.split.y.std(), key["method"]
    began, found = time.process_time(), dict[str, Any]()
    if method.startswith("auto"):
        model, found = chosen(own, float(method.removeprefix("auto-")))
    else:
        model = expert.fitted(key["set"], method, split)
    fitted = time.process_time()
    scores = daskgp.check(model, split.X_test, split.y_test).scores
    sizes = {"n": len(split.y), "d": split.X.shape[1], "fit_s": fitted - began}
    own_scores = {name: scores[name] / unit for name in ("rmse", "crps") if name in scores}
    more = {"nlpd": scores["nlpd"], "coverage": scores["coverage_95"]}
    return {**sizes, **found, **own_scores, **more, "predict_s": time.process_time() - fitted}


def table(records: list[dict], options: harness.Options) -> str:
    """Return a row per set and budget: scores of AutoGP, and by how much they are behind."""
    rows, runs = [], harness.grouped(records, "set")
    for name in (name for name in VARIED if (name,) in runs):
        ran = {r["key"]["method"]: r for r in runs[name,] if "rmse" in r}
        single = {method: r for method, r in ran.items() if not method.startswith("auto")}
        for method in (method for method in ran if method not in single):
            own, cells = ran[method], [name, f"{ran[method]['n']:,} × {ran[method]['d']}"]
            cells += [f"{method.removeprefix('auto-')} s", own["remark"]]
            cells += [harness.cell(own, "over", ".2f")]
            cells += [harness.cell(own, "first_s", ".1f")]
            for score in ("rmse", "crps"):
                has = {method: r for method, r in single.items() if score in r}
                cells += [harness.cell(own, score, ".4f"), *behind(own, has, score)]
            spent = sum(r["processor_s"] for r in single.values())
            rows.append([*cells, harness.cell({"s": spent}, "s", ",.0f") if single else "–"])
    scores = [f"{score}{head}" for score in ("RMSE", "CRPS") for head in ("", ": behind", ": best")]
    heads = ["set", "rows", "budget", "AutoGP chose", "time over budget", "first answer s", *scores]
    return harness.markdown([*heads, "expert's processor s"], rows)


def behind(own: dict, single: dict[str, dict], score: str) -> tuple[str, str]:
    """Return by how much a score is behind that of the best single method, and which that is."""
    if not single or score not in own:
        return "–", "–"
    best = min(single, key=lambda method: single[method][score])
    share = own[score] / single[best][score] - 1
    text = f"{share:+.1%}".replace("-", "−")
    return f"**{text}**" if share > PROMISED else text, best


harness.command(
    globals(),
    limit=3.0,
    sets=list(VARIED),
    budgets=([30.0], [10.0]),
    auto=False,
    expert=False,
    rows=(None, 250),
)
