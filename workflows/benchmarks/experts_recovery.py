"""Distributed training of experts at the settings of the paper: which way finds the truth.

    python workflows/benchmarks/experts_recovery.py [--seeds 10] [--loss sum,mean] [--steps 5]
        [--figure boxes.png]

After section 5.1.1 of the paper on optimal weights ([OPT]): 10,000 targets drawn from a GP on
[-1, 1]² with lengthscales 0.3 and 1.3, standard deviations 0.2 of f and 0.1 of noise; training
starts at 2.0, 0.3, root of 1.5 and 1.0.  128 inducing inputs begin at rows chosen greedily and are
trained, too; all ways make 200 rounds with a rate of 0.1 of Adam.  Half of the experts take part in
a round of FedProx.  "one GP" is SGPR by L-BFGS: what the rows say.

The penalties of the paper, rho = 500 of ADMM and mu = 0.01 of FedProx, weigh against the loss of an
expert.  If that is a ``sum`` over its rows, they are as large as experts over rows times that here,
where it is their mean; if it is a ``mean``, too, they are the same.  Nor does the paper say how
many ``--steps`` of Adam an expert makes in a round; with one step FedProx has no use for mu.  FACT
and FedAvg have no penalty, and FACT no such steps.

The figure has a box for each way and number of experts, over the seeds ([OPT], figure 8); another,
whose name ends in -rounds, the means over seeds round by round ([OPT], figure 2).
"""

from itertools import product
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np

import daskgp
from daskgp import kernels

TRUTH = {"lengthscale[0]": 0.3, "lengthscale[1]": 1.3, "variance": 0.2, "noise_variance": 0.1}
LABELS = ("lengthscale 1", "lengthscale 2", "std of f", "std of noise")
FULL, RATE, RHO, MU = "one GP", 0.1, 500.0, 0.01
TRAININGS = {"FACT": "fact", "ADMM": "admm", "FedAvg": "fedavg", "FedProx": "fedprox"}
PENALISED = ("ADMM", "FedProx")


def keys(options: harness.Options) -> harness.Keys:
    """Yield all runs of a seed before those of the next one."""
    for seed in range(1, options.seeds + 1):
        sizes = {"seed": seed, "rows": options.rows, "inducing": options.inducing}
        yield {"training": FULL, "loss": "", "steps": 0, "experts": 1} | sizes
        for experts, name in product(options.experts, options.trainings):
            steps = 0 if name == "FACT" else options.steps
            for loss in options.loss if name in PENALISED else [""]:
                yield {"training": name, "loss": loss, "steps": steps, "experts": experts} | sizes


def measure(key: dict, options: harness.Options) -> dict:
    """Return every hyper-parameter at the end and round by round, variances by their roots."""
    X, y = datasets.two_lengths(key["rows"], key["seed"])
    shared = {"mean": "zero", "standardize": False, "progress": False}
    shared |= {"kernel": kernels.RBF((2.0, 0.3), 1.5, ard=True), "noise_variance": 1.0}
    shared |= {"n_inducing": key["inducing"], "train_inducing": True}
    if key["training"] == FULL:
        model = daskgp.SGPR(**shared).fit(X, y)
    else:
        ways = settings(key) | {"max_iter": options.rounds, "tol": 1e-12}  # all rounds are made
        model = daskgp.ExpertsGP(n_experts=key["experts"], **shared, **ways).fit(X, y)
    names, logs = model.kernel_.parameter_names, model.kernel_.log_parameters
    ended = dict(zip(names, np.exp(logs), strict=True)) | {"noise_variance": model.noise_variance_}
    found = {part: rooted(part, float(ended[part])) for part in TRUTH}
    way = {part: [rooted(part, entry[part]) for entry in model.history_] for part in TRUTH}
    return {**found, "train_s": model.history_[-1]["seconds"], "path": way}


def settings(key: dict) -> dict[str, Any]:
    """Return the settings of a way of training."""
    name = key["training"]
    found: dict[str, Any] = {"training": TRAININGS[name], "learning_rate": RATE}
    if name == "FACT":
        return found | {"optimizer": "adam"}
    share = key["experts"] / key["rows"] if key["loss"] == "sum" else 1.0
    own = {"ADMM": {"rho": RHO * share}, "FedProx": {"mu": MU * share, "sampling_rate": 0.5}}
    return found | {"local_steps": key["steps"]} | own.get(name, {})


def rooted(name: str, value: float) -> float:
    """Return the standard deviation for a variance."""
    return value**0.5 if "variance" in name else value


def label(key: dict) -> str:
    """Return the name of a way of training in tables and figures."""
    steps = f", {key['steps']} step{'s' * (key['steps'] > 1)}" if key["steps"] else ""
    return f"{key['training']}{steps}" + (f", {key['loss']}" if key["loss"] else "")


def grouped(records: list[dict]) -> dict[tuple[str, int], list[dict]]:
    """Return the runs that ended by their way of training and number of experts."""
    found: dict[tuple[str, int], list[dict]] = {}
    for record in records:
        if "path" in record:
            found.setdefault((label(record["key"]), record["key"]["experts"]), []).append(record)
    return found


def table(records: list[dict], options: harness.Options) -> str:
    """Return means ± standard deviations over seeds."""
    lines = [["truth", "", *(f"{value:.3f}" for value in TRUTH.values()), ""]]
    for (name, count), runs in grouped(records).items():
        ends = [[run[part] for run in runs] for part in TRUTH]
        cells = [f"{np.mean(of):.3f} ± {np.std(of):.3f}" for of in ends]
        lines.append([name, str(count), *cells, f"{np.mean([r['train_s'] for r in runs]):.0f}"])
    return harness.markdown(("", "M", *LABELS, "seconds"), lines)


def figure(records: list[dict], path: Path) -> None:
    """Draw boxes of the ends, and the means round by round."""
    import drawing

    found = {place: runs for place, runs in grouped(records).items() if place[0] != FULL}
    names, counts = (list(dict.fromkeys(part)) for part in zip(*found, strict=True))
    counts.sort()
    drawn, axes = drawing.panels(4, 6.6, 2)
    for ax, part, text in zip(axes, TRUTH, LABELS, strict=True):
        ends = {n: [[r[part] for r in found.get((n, m), [])] for m in counts] for n in names}
        drawing.boxes(ax, list(map(str, counts)), ends, f"experts|{text}", "y", TRUTH[part])
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    drawn.savefig(path, dpi=150)
    drawn, axes = drawing.panels(4 * len(names), 2.1 * len(names), len(names))
    panels = product(names, zip(TRUTH, LABELS, strict=True))
    for at, (ax, (name, (part, text))) in enumerate(zip(axes, panels, strict=True)):
        for number, count in enumerate(counts):
            ways = [run["path"][part] for run in found.get((name, count), [])]
            middle = np.mean([way[: min(map(len, ways))] for way in ways], axis=0)
            ax.plot(middle, color=drawing.COLOURS[number], lw=1.2, label=f"{count} experts")
        ax.axhline(TRUTH[part], color="#000000", ls="--", lw=1)
        drawing.finish(ax, "y", title=text if at < 4 else "", ylabel="" if at % 4 else name)
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    drawn.savefig(path.with_stem(f"{path.stem}-rounds"), dpi=150)


harness.command(
    globals(),
    trainings=TRAININGS,
    loss=("sum", "mean"),
    experts=([2, 8, 20, 40, 100], [3]),
    rows=(10_000, 400),
    inducing=(128, 20),
    rounds=(200, 3),
    steps=5,
    seeds=1,
)
