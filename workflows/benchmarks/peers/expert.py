"""What an expert tries on the sets of ``datasets/varied.py``: methods, and settings to suit."""

from __future__ import annotations

from typing import Any

import harness
from datasets.split import Split
from datasets.varied import FIELDS, SERIES, TABLES

import daskgp

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "lma": ("LMA", {}),
    "sgpr": ("SGPR", {"train_inducing": True, "max_iter": 60}),
    "exact": ("ExactGP", {}),
    "exact-linear": ("ExactGP", {"mean": "linear"}),
    "student-t": ("SVGP", {"likelihood": "student-t", "max_iter": 1_000}),
    "vecchia": ("VecchiaGP", {}),
    "vecchia-60": ("VecchiaGP", {"n_neighbours": 60, "predict_neighbours": 200}),
    "vecchia-rough": ("VecchiaGP", {"kernel": "matern12()", "predict_neighbours": 200}),
    "vecchia-sum": ("VecchiaGP", {"kernel": "matern52(ard=true) + matern12(ard=true)"}),
    "vecchia-linear": ("VecchiaGP", {"mean": "linear", "predict_neighbours": 200}),
    "vecchia-varying": ("VecchiaGP", {"varying": "auto"}),
    "periodic": ("ExactGP", {"kernel": "matern32() + periodic() * rbf()"}),
    "calendar": ("ExactGP", {}),
    "calendar-linear": ("ExactGP", {"mean": "linear"}),
}
"""Class and settings; ``exact`` learns its hyper-parameters from LEARNT_ON rows."""
TABLE = ("vecchia", "vecchia-60", "exact")
FIELD = ("vecchia", "vecchia-60", "vecchia-rough")
CHANGING = ("vecchia", "vecchia-60", "vecchia-varying")
CYCLES = ("vecchia", "exact-linear", "periodic", "calendar")
TRIED = {
    **dict.fromkeys(TABLES, TABLE),
    **dict.fromkeys(FIELDS, FIELD),
    **dict.fromkeys(SERIES, CYCLES),
    "keggdirected": (*TABLE, "student-t"),
    "kin40k": (*TABLE, "lma"),
    "protein": (*TABLE, "lma"),
    "elevators": (*TABLE, "sgpr"),
    "heteroscedastic": ("vecchia", "sgpr", "exact", "vecchia-varying"),
    "friedman": ("vecchia", "sgpr", "exact", "exact-linear", "lma"),
    "outliers": ("vecchia", "exact", "student-t"),
    "emulator": ("exact", "exact-linear", "sgpr", "vecchia"),
    "air": ("vecchia", "vecchia-60", "vecchia-linear"),
    "stations": ("vecchia", "vecchia-60", "vecchia-linear"),
    "terrain": ("vecchia", "vecchia-60", "vecchia-sum", "vecchia-varying"),
    "lines": (*FIELD, "vecchia-linear", "vecchia-varying"),
    "cluster": CHANGING,
    "changing": CHANGING,
    "day": ("exact", "exact-linear", "vecchia-linear", "vecchia-varying"),
    "bursts": ("vecchia", "vecchia-60", "vecchia-sum"),
    "cycles": (*CYCLES, "calendar-linear"),
    "tide": ("vecchia", "student-t", "periodic", "calendar"),
}
"""Methods of each set, together at most 300 processor seconds."""
PERIODS = {"seasons": (365.25,), "hours": (24, 8_766), "cycles": (365.25, 7), "tide": (12.42, 12)}
"""Periods that the expert knows, of ``calendar``: a sum of a cycle of each and the rest."""
LEARNT_ON = 2_000


def fitted(name: str, method: str, split: Split) -> Any:
    """Return a method of the expert, fitted to the rows of a set."""
    kind, settings = METHODS[method]
    settings = harness.lowered(settings, max(len(split.y) // 4, 1))
    if method.startswith("calendar"):
        cycles = (f"periodic(period={period}) * rbf()" for period in PERIODS[name])
        settings |= {"kernel": " + ".join(["matern32()", *cycles])}
    if kind == "ExactGP" and len(split.y) > LEARNT_ON:
        few = split.drawn(LEARNT_ON)
        found = daskgp.ExactGP(**settings, progress=False).fit(few.X, few.y)
        settings |= {"kernel": found.kernel_, "optimizer": None}
        settings["noise_variance"] = found.noise_variance_
    return getattr(daskgp, kind)(**settings, progress=False).fit(split.X, split.y)
