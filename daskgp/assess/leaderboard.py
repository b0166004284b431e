"""Trials of candidates on held-out rows, and the table of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import ndtr

from daskgp.assess.scores import Scores, Sums, aligned

OF_KINDS = ("ranked_probability", "brier", "accuracy")
"""Scores of counts and of classes, which a table shows where there are some."""


@dataclass(frozen=True)
class Trial:
    """A candidate that was fitted to some rows and scored on held-out ones.

    Attributes
    ----------
    stage : {"mean", "structure", "method", "size"}
        Question that the trial helps to answer; "mean" is the constant prediction.
    method : str
        Name of the estimator in the registry, or "mean".
    kernel : str
        Structure of the kernel, such as "matern52 (ard)".
    settings : dict
        Settings that differ from the defaults, as plain values.
    rows : int
        Rows that it was fitted to, in each fold.
    score, error : float
        Mean of the metric over held-out values, and its standard error; less is better.
    scores : dict of str to float
        "nlpd", "rmse", and "crps" and "coverage_95" where predictions are Gaussian; of counts
        "crps" and "ranked_probability", of classes "brier" and "accuracy".
    seconds : float
        Time that the fits and the predictions took.
    bytes : int
        Peak memory of a process, by its plan.
    stopped : bool
        Whether the deadline ended its training early.
    failed : str
        Why it has no score; empty if it has one.
    """

    stage: str
    method: str
    kernel: str
    settings: Mapping[str, Any]
    rows: int
    score: float
    error: float
    scores: Mapping[str, float]
    seconds: float
    bytes: int
    stopped: bool = False
    failed: str = ""

    @property
    def label(self) -> str:
        """Method and settings in a few words."""
        settings = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.method}({settings})" if settings else self.method

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, None for a score that is not known."""
        found = asdict(self)
        for name in ("score", "error"):
            found[name] = found[name] if np.isfinite(found[name]) else None
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the trial that ``to_dict`` has described."""
        plain = {
            name: float("nan") if values.get(name) is None else values[name]
            for name in ("score", "error")
        }
        return cls(**{**values, **plain})


@dataclass(frozen=True)
class Leaderboard(Sequence[Trial]):
    """All trials of a search, the best first; ``print`` shows them as a table.

    Trials on more rows stand before those on fewer, as only these tell of the fit to all rows.

    Attributes
    ----------
    metric : {"nlpd", "crps", "rmse"}
        Score that decides.
    trials : tuple of Trial
    chosen : int
        Number of the trial whose candidate was chosen.
    rows : int
        Rows of the last fit.
    """

    metric: str
    trials: tuple[Trial, ...]
    chosen: int
    rows: int = 0
    findings: tuple[str, ...] = field(default=())

    @classmethod
    def of(
        cls,
        metric: str,
        trials: Sequence[Trial],
        chosen: Trial,
        rows: int,
        findings: Sequence[str] = (),
    ) -> Self:
        """Return trials in any order as a leaderboard."""

        def rank(trial: Trial) -> tuple[bool, int, float]:
            worst = not np.isfinite(trial.score)
            return worst, -trial.rows, trial.score if not worst else 0.0

        ordered = tuple(sorted(trials, key=rank))
        return cls(metric, ordered, ordered.index(chosen), rows, tuple(findings))

    def with_finding(self, finding: str) -> Self:
        """Return the board with one more finding."""
        return replace(self, findings=(*self.findings, finding))

    def __len__(self) -> int:
        return len(self.trials)

    def __getitem__(self, index: Any) -> Any:
        return self.trials[index]

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    @property
    def best(self) -> Trial:
        """Trial whose candidate was chosen."""
        return self.trials[self.chosen]

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a row of figures for each trial."""
        found = []
        names = {name for trial in self.trials for name in trial.scores}
        of_kind = [name for name in OF_KINDS if name in names]
        for i, trial in enumerate(self.trials):
            rmse = trial.scores.get("rmse", float("nan"))
            note = trial.failed or ("stopped by the deadline" if trial.stopped else "")
            found.append(
                {
                    "chosen": "*" if i == self.chosen else "",
                    "method": trial.label,
                    "kernel": trial.kernel,
                    "rows": trial.rows,
                    self.metric: _digits(trial.score),
                    "error": _digits(trial.error),
                    **({} if self.metric == "rmse" else {"rmse": _digits(rmse)}),
                    **{n: _digits(trial.scores.get(n, float("nan"))) for n in of_kind},
                    "seconds": round(trial.seconds, 1),
                    "MiB": round(trial.bytes / 2**20),
                    "note": note,
                }
            )
        return found

    def __str__(self) -> str:
        return aligned(self.to_rows())

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a model store keeps them."""
        return {
            "metric": self.metric,
            "trials": [trial.to_dict() for trial in self.trials],
            "chosen": self.chosen,
            "rows": self.rows,
            "findings": list(self.findings),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the leaderboard that ``to_dict`` has described."""
        trials = tuple(Trial.from_dict(one) for one in values["trials"])
        metric, chosen, rows = str(values["metric"]), int(values["chosen"]), int(values["rows"])
        return cls(metric, trials, chosen, rows, tuple(values.get("findings", ())))


class HeldOut(NamedTuple):
    """Predictions of held-out rows by the candidate chosen, before its fit to all rows.

    Attributes
    ----------
    X : ndarray (n, d)
        In the user's units.
    y, mean, variance : ndarray (n, p)
        Targets, and moments of new observations as predicted.
    score : ndarray (n, p)
        Standardised residual, or normal score of the distribution function of y.
    density : ndarray (n, p)
        Log density of y.
    crps, ranked : ndarray (n, p)
        Continuous ranked probability score, and that of counts, NaN where there is none.
    right : ndarray (n, p)
        Whether the class is the likelier one, 1 or 0; NaN where there are none.
    """

    X: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    score: np.ndarray
    density: np.ndarray
    crps: np.ndarray
    ranked: np.ndarray
    right: np.ndarray

    @property
    def sums(self) -> Sums:
        """Sums over the values, of which all their scores follow."""
        nothing, error = np.full(self.y.shape, np.nan), self.y - self.mean
        own = self.score, ndtr(self.score), self.density, self.crps, nothing
        more = self.ranked, self.right
        return Sums.of(Scores(self.y, self.mean, self.variance, error, *own, *more))


def _digits(value: float) -> float:
    """Return a score with four digits."""
    return float(f"{value:.4g}")
