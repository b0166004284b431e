"""Show what hyper-parameters that vary over space bring, and that they do no harm.

    [DASKGP_DATA=folder] python workflows/benchmarks/varying.py --out results.jsonl
    python workflows/benchmarks/varying.py --out results.jsonl --data satellite --methods auto
    python workflows/benchmarks/varying.py --out results.jsonl --table

``changing`` is a field on the unit square whose lengthscale grows tenfold from left to right while
its variance falls tenfold; ``changing-lines`` the same along lines, every fifth left out.  With
DASKGP_DATA: ``terrain`` has heights of the Andes at cells drawn at random, ``srtm`` those around
voids, ``satellite`` temperatures under clouds, ``air`` a gridded field in space and time with
gaps, ``stations`` daily maxima with months of a station left out.  ``survey`` and ``exponential``
are fields that do not change.

``common``, ``varying`` and ``auto`` are ``VecchiaGP`` with these hyper-parameters and no other
setting but a Matérn-1/2 kernel for satellite, survey and exponential; ``over-space`` is "auto"
over longitude and latitude alone, and ``true`` has the map of the truth.  ``gpboost`` is its
Vecchia approximation with that kernel, else Matérn-3/2, and a lengthscale per column.

Scores are of new observations.  ``worst_tenth`` is the coverage of intervals of 95 % that a tenth
of 50 regions of places falls short of; ``rough`` and ``smooth`` are the coverages of f in the left
and right half of a changing field.
"""

from typing import Any

import datasets
import harness
import numpy as np
from peers import gpboost
from scipy.cluster import vq

import daskgp

SIMULATED = ("changing", "changing-lines", "survey", "exponential")
DATA = (*SIMULATED, "satellite", "terrain", "srtm", "air", "stations")
VARYING: dict[str, dict[str, Any]] = {
    "common": {},
    "varying": {"varying": 32},
    "auto": {"varying": "auto"},
    "over-space": {"varying": "auto", "varying_over": ("x0", "x1")},
    "true": {},
}
ROUGH = ("satellite", "survey", "exponential")
REGIONS, LEAST = 50, 20
"""Regions of places, and places of one that counts."""


def keys(options: harness.Options) -> harness.Keys:
    lists = {"data": datasets.present(options.data), "method": options.methods}
    for key in harness.runs(options, "rows", **lists, seed=range(options.seeds)):
        case, method = datasets.CASES.get(key["data"]), key["method"]
        if method == "true" and not key["data"].startswith("changing"):
            continue
        if method == "over-space" and key["data"] not in ("air", "stations"):
            continue
        if key["seed"] < (1 if case is None else case.seeds):
            yield key


def measure(key: dict, options: harness.Options) -> dict:
    name, method = key["data"], key["method"]
    if name in SIMULATED:
        tiny = key["rows"] is not None
        split = datasets.stored(options.folder, name, key["seed"], tiny).thinned(key["rows"])
    else:
        split = datasets.table(name, key["rows"])
    halves: dict[str, float] = {}
    if method == "gpboost":
        found = (gpboost.exponential_ard if name in ROUGH else gpboost.matern32)(
            split, options.threads
        )
    else:
        model = daskgp.VecchiaGP(kernel_of(name), **VARYING[method])
        if method == "true":
            model.set_params(varying=true_map(datasets.CASES[name].truth))
        found = harness.fitted(model, split)
        if name.startswith("changing"):
            halves = of_halves(split, *model.predict(split.X_test, return_std=True))
        gains = {n: v for n, v in model.history_[-1].items() if n.startswith("varying_gain")}
        found = found._replace(remarks=gains | {"varies": model.solved_.theta.varying is not None})
    scores = ("rmse", "crps", "nlpd", "coverage")
    sizes = {"n": len(split.y), "places": len(split.y_test)}
    scored = found.scored(split.y_test, *scores)
    return {**sizes, **scored, "worst_tenth": worst_tenth(split, found), **halves}


def kernel_of(name: str) -> str | None:
    if name.startswith("changing"):
        return "matern32()"
    return "matern12(ard=true)" if name in ROUGH else None


def true_map(truth: datasets.Truth) -> Any:
    """Return the hyper-parameters of the truth on a grid of knots."""
    import xarray as xr

    at = np.stack(np.meshgrid(np.linspace(0, 1, 41), [0.0, 0.5, 1.0]), -1).reshape(-1, 2)
    lengths, variances = datasets.change(at, truth)
    fields = {"lengthscale": lengths, "variance": variances}
    fields["noise_variance"] = np.full(len(at), truth.noise)
    along = {name: ("knot", values) for name, values in fields.items()}
    return xr.Dataset(along, {f"x{j}": ("knot", at[:, j]) for j in (0, 1)})


def of_halves(split: datasets.Split, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return how often intervals hold f in the rough half, and in the smooth one."""
    inside, left = np.abs(split.f_test - mean) < 1.96 * std, split.X_test[:, 0] < 0.5
    return {"rough": float(inside[left].mean()), "smooth": float(inside[~left].mean())}


def worst_tenth(split: datasets.Split, found: harness.Outcome) -> float:
    """Return the coverage that a tenth of the regions falls short of."""
    assert found.mean is not None
    assert found.variance is not None
    std = np.sqrt(np.ravel(found.variance))
    inside = np.abs(split.y_test - np.ravel(found.mean)) < 1.96 * std
    places = vq.whiten(split.X_test[:, :2])
    _, region = vq.kmeans2(places, min(REGIONS, len(places)), seed=0, minit="++")
    sizes = np.bincount(region)
    shares = np.bincount(region, inside) / np.maximum(sizes, 1)
    return float(np.quantile(shares[sizes >= min(LEAST, sizes.max())], 0.1))


def table(records: list[dict], options: harness.Options) -> str:
    numbers = (
        "rmse crps nlpd coverage worst_tenth rough smooth varying_gain varying_gain_in_gaps "
        "fit_s predict_s processor_s peak_mib runs"
    )
    return harness.report(harness.medians(records, "data", "method"), "data method", numbers)


harness.command(
    globals(),
    data=harness.Some(DATA, DATA),
    methods=harness.Some((*VARYING, "gpboost"), tuple(VARYING)),
    seeds=(3, 1),
    rows=(None, 400),
)
