"""Distributed training of experts: where the hyper-parameters end, and how soon.

    python workflows/benchmarks/experts_training.py [--experts 20] [--figure training.png]

10,000 targets drawn from a GP on [-1, 1]² with lengthscales 0.3 and 1.3, standard deviations 0.2 of
f and 0.1 of noise; training starts at 2.0, 0.3, root of 1.5 and 1.0.  128 inducing inputs chosen
greedily stay where they are.  Rates of Adam are 0.1, and 0.05 for FACT; half of the experts take
part in a round of FedProx.  All make 200 rounds, ADMM a quarter of them: its rounds have four times
the steps.  "one GP" is SGPR with the same inducing inputs by L-BFGS: what the rows say.
"""

from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np

import daskgp
from daskgp import kernels, plot

TRUTH = {"lengthscale[0]": 0.3, "lengthscale[1]": 1.3, "variance": 0.04, "noise_variance": 0.01}
LABELS = ("lengthscale 1", "lengthscale 2", "variance of f", "noise variance")
FULL = "one GP"
TRAININGS: dict[str, dict[str, Any]] = {
    "FACT": {"training": "fact", "optimizer": "adam"},
    "ADMM": {"training": "admm", "learning_rate": 0.1},
    "pxADMM": {"training": "pxadmm"},
    "FedAvg": {"training": "fedavg", "learning_rate": 0.1},
    "FedProx": {"training": "fedprox", "sampling_rate": 0.5, "learning_rate": 0.1},
}


def keys(options: harness.Options) -> harness.Keys:
    for seed in range(1, options.seeds + 1):
        yield {"training": FULL, "experts": 1, "seed": seed, "rows": options.rows}
        lists = {"experts": options.experts, "training": options.trainings}
        yield from harness.runs(options, "rows", seed=[seed], **lists)


def measure(key: dict, options: harness.Options) -> dict:
    """Return every hyper-parameter at the end and, of experts, round by round."""
    X, y = datasets.two_lengths(key["rows"], key["seed"])
    start = {"kernel": kernels.RBF((2.0, 0.3), 1.5, ard=True), "noise_variance": 1.0}
    shared: dict[str, Any] = {"mean": "zero", "standardize": False, "progress": False, **start}
    place = options.folder / f"inducing-{key['rows']}-{key['seed']}.npy"
    if key["training"] == FULL:
        model = daskgp.SGPR(n_inducing=options.inducing, **shared).fit(X, y)
        np.save(place, model.inducing_)
    else:
        quarter = key["training"] == "ADMM"
        model = daskgp.ExpertsGP(
            n_experts=key["experts"],
            inducing=np.load(place),
            max_iter=-(-options.rounds // 4) if quarter else options.rounds,
            tol=1e-12,  # as many rounds as there are
            **shared,
            **TRAININGS[key["training"]],
        ).fit(X, y)
    values = np.exp(model.kernel_.log_parameters)
    ended = dict(zip(model.kernel_.parameter_names, map(float, values), strict=True))
    ended["noise_variance"] = float(model.noise_variance_)
    path = {name: [entry[name] for entry in model.history_] for name in TRUTH}
    spent = {"rounds": len(model.history_), "train_s": model.history_[-1]["seconds"]}
    return {**ended, **spent, **({} if key["training"] == FULL else {"path": path})}


def table(records: list[dict], options: harness.Options) -> str:
    def shown(values: dict[str, float]) -> list[str]:
        return [f"{v**0.5 if 'variance' in name else v:.3f}" for name, v in values.items()]

    lines = [["truth", "", *shown(TRUTH), "", ""]]
    for (name, count), runs in harness.grouped(records, "training", "experts").items():
        ran = [run for run in runs if "rounds" in run]
        if ran:
            means = {part: float(np.mean([run[part] for run in ran])) for part in TRUTH}
            spent = (f"{np.mean([run[part] for run in ran]):.0f}" for part in ("rounds", "train_s"))
            lines.append([name, str(count), *shown(means), *spent])
    heads = ("", "M", *LABELS[:2], "std of f", "std of noise", "rounds", "seconds")
    return harness.markdown(heads, lines)


def figure(records: list[dict], path: Path) -> None:
    """Draw the hyper-parameters round by round with a middle number of experts, first draw."""
    counts = sorted({r["key"]["experts"] for r in records if "path" in r})
    middle = counts[len(counts) // 2]
    paths: dict[str, dict] = {}
    for record in records:
        if record["key"]["experts"] == middle and "path" in record:
            paths.setdefault(record["key"]["training"], record["path"])
    labels = dict(zip(TRUTH, LABELS, strict=True))
    panels = {
        label: {name: np.array(found[part]) for name, found in paths.items()}
        for part, label in labels.items()
    }
    truth = {label: TRUTH[part] for part, label in labels.items()}
    title = f"{middle} experts"
    plot.traces(panels, name="round", reference=truth, title=title, path=str(path))


harness.command(
    globals(),
    trainings=TRAININGS,
    experts=([2, 8, 20, 40, 100], [3]),
    rows=(10_000, 400),
    inducing=(128, 20),
    rounds=(200, 3),
    seeds=1,
)
