"""Real data from the command line: convert, fit, predict and score, as a user would.

    DASKGP_DATA=folder python workflows/benchmarks/real.py [--data satellite]

SGPR with 1,024 inducing inputs that are trained.  The folder holds ``spatial/satellite.npz`` (the
land-surface temperatures of Heaton et al. 2019) and ``uci/kin40k.npz``, of which split 0 is used.
Scores are in the units of the data; rmse and nlpd are also given for the standardised target.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import datasets
import harness
import numpy as np

SETTINGS: dict[str, dict[str, object]] = {
    "satellite": {"kernel": "matern12()", "max_iter": 30},
    "kin40k": {"kernel": "matern32(ard=true)", "max_iter": 200},
}
NAMES = {"satellite": ("lon", "lat"), "kin40k": ()}


def keys(options: harness.Options) -> Iterator[dict]:
    for name in datasets.present(options.data):
        yield {"data": name, "rows": options.rows, "inducing": options.inducing}


def measure(key: dict, options: harness.Options) -> dict:
    """Return scores and seconds of one set."""
    split = datasets.table(key["data"], key["rows"])
    settings = {"n_inducing": key["inducing"], "train_inducing": "true", **SETTINGS[key["data"]]}
    if options.tiny:
        settings["max_iter"] = 10
    workers = ("--workers", str(options.threads))
    with tempfile.TemporaryDirectory() as folder:
        harness.convert(Path(folder), split, NAMES[key["data"]])
        found = harness.by_command_line(Path(folder), "sgpr", settings, *workers)
    scores = ("rmse", "mae", "nlpd", "crps", "coverage", "interval")
    scored, unit = found.scored(split.y_test, *scores), split.y.std()
    standard = {"rmse_std": scored["rmse"] / unit, "nlpd_std": scored["nlpd"] - np.log(unit)}
    return {"n": len(split.y), **scored, **standard}


table = harness.reporting(
    "data", "n rmse mae nlpd crps coverage interval rmse_std nlpd_std fit_s predict_s"
)
harness.command(globals(), data=SETTINGS, rows=(None, 500), inducing=(1_024, 20))
