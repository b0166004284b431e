"""Fits and predictions, their seconds and their scores."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from daskgp import metrics
from harness.processes import daskgp


class Outcome(NamedTuple):
    """Seconds of a fit and of its prediction, the prediction of y with its noise, and remarks."""

    fit_s: float
    predict_s: float | None = None
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None
    remarks: dict[str, Any] = {}  # noqa: RUF012  never changed

    def scored(self, y: np.ndarray, *names: str) -> dict[str, Any]:
        """Return scores, seconds and remarks; no density where a variance is not positive."""
        found = {"fit_s": self.fit_s, "predict_s": self.predict_s, **self.remarks}
        variance = None if self.variance is None else np.ravel(self.variance)
        if variance is not None and variance.min() <= 0:
            found["not_positive"], variance = int((variance <= 0).sum()), None
        for name in names:
            score = getattr(metrics, {"interval": "interval_score"}.get(name, name))
            if name in ("rmse", "mae", "nmse") and self.mean is not None:
                found[name] = float(score(y, np.ravel(self.mean)))
            elif variance is not None:
                found[name] = float(score(y, np.ravel(self.mean), variance))
        return found


def fitted(model: Any, split: Any) -> Outcome:
    """Fit an estimator to a split's rows and predict the others."""
    began = time.perf_counter()
    model.set_params(progress=False).fit(split.X, split.y)
    done = time.perf_counter()
    mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
    return Outcome(done - began, time.perf_counter() - done, mean, std**2)


def convert(folder: Path, split: Any, features: Sequence[str] = ()) -> None:
    """Write train.zarr and test.zarr by daskgp's command, the columns of X under names or as X."""
    given = ("--features", ",".join(features)) if features else ()
    for part, X, y in (("train", split.X, split.y), ("test", split.X_test, split.y_test)):
        columns = dict(zip(features, X.T, strict=True)) if features else {"X": X}
        np.savez(folder / f"{part}.npz", y=y, **columns)
        daskgp(folder, "convert", f"{part}.npz", f"{part}.zarr", "--target", "y", *given)


def by_command_line(
    data: Path, model: str, settings: Mapping[str, object], *cluster: str
) -> Outcome:
    """Fit train.zarr of a folder and predict test.zarr by daskgp's commands, as a user would."""
    import zarr

    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    train, test = (str((data / f"{part}.zarr").resolve()) for part in ("train", "test"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        fit = daskgp(folder, "fit", train, "model.zarr", "--model", model, *words, *cluster)
        predict = daskgp(folder, "predict", "model.zarr", test, "out.zarr", *cluster)
        out = zarr.open_group(folder / "out.zarr", mode="r")
        mean, variance = (np.ravel(np.asarray(out[name])) for name in ("mean", "variance"))
    remarks = {"iterations": fit.result["iterations"]}
    return Outcome(fit.seconds, predict.seconds, mean, variance, remarks)


def lowered(settings: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return settings whose numbers of inputs, functions and rows are at most so many."""
    return {
        name: min(value, most) if name.startswith("n_") or name == "batch_rows" else value
        for name, value in settings.items()
    }
