"""Profiles of training rows: sizes and peculiarities, and what a search makes of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, cast

import dask
import numpy as np

from daskgp import data
from daskgp.choose import cycles as repeating
from daskgp.choose.cycles import Series
from daskgp.data.blocks import sampling
from daskgp.data.folds import even_spans
from daskgp.data.partition import Span
from daskgp.data.rows import BOUNDS
from daskgp.models import repeats, scaling
from daskgp.runtime.executor import Executor, map_all
from daskgp.typing import LikelihoodName

Kind = Literal["measured", "class", "count", "successes", "bounded"]

LIKELIHOODS: dict[Kind, LikelihoodName] = {
    "class": "bernoulli",
    "successes": "binomial",
    "bounded": "censored",
}
SAID: dict[Kind, str] = {
    "count": "counts",
    "successes": "successes of trials",
    "bounded": "values between bounds",
}
LEVELS = 20
"""Most distinct values of a column that is called discrete."""
COUNTS = 30.0
"""Mean of counts above which a Gaussian describes them as well as a Poisson law."""
LESS, MORE = 0.5, 1.5
"""Variances of counts, relative to their mean, below which they are no counts of events, such as
marks of a scale, and above which they may scatter more than a Poisson law says."""
HEAVY = 9.0
"""Kurtosis of standardised residuals above which tails are heavy; 3 for a Gaussian."""
MOSTLY, LEAST_PLACES = 0.5, 50.0
"""Share of rows that repeat the inputs of another, above which places are held out whole, and the
fewest places for that."""
REPEATED = 0.02
"""Share of rows that repeat the inputs of another, from which it is said."""


@dataclass(frozen=True)
class Profile:
    """Sizes and peculiarities of training rows.

    Attributes
    ----------
    rows : int
        Usable rows.
    features : tuple of str
        Columns of X.
    constant, discrete : tuple of str
        Columns of X with one value in all rows, and with few.
    kind : {"measured", "class", "count", "successes", "bounded"}
        What the target is.
    columns : tuple of str
        Numbers that rows have beside it, which its likelihood takes.
    places : float
        Number of distinct rows of X, estimated.
    told : str, optional
        Likelihood that is asked for; None if the target tells it.
    scatters : bool
        Whether counts vary more than a Poisson law of one rate says.
    repeated : float
        Share of rows that repeat the inputs of another row.
    heavy : bool
        Whether residuals have heavy tails, by the first trial.
    times : tuple of int
        Columns that are times by their units.
    alike : bool
        Whether one lengthscale can serve all features; not where only some are on the sphere.
    findings : tuple of str
        What was recognised, and what is done about it, in sentences.
    """

    rows: int
    features: tuple[str, ...]
    constant: tuple[str, ...]
    discrete: tuple[str, ...]
    kind: Kind
    repeated: float
    heavy: bool = False
    times: tuple[int, ...] = ()
    alike: bool = True
    findings: tuple[str, ...] = ()
    token: str = ""
    """Identity of the data."""
    scatters: bool = field(default=False, repr=False)
    columns: tuple[str, ...] = field(default=(), repr=False)
    places: float = field(default=0.0, repr=False)
    told: LikelihoodName | str | None = field(default=None, repr=False)
    weighted: bool = field(default=False, repr=False)
    categories: tuple[str, ...] = field(default=(), repr=False)
    """Columns of X that are categories of several levels."""
    series: Series = field(default=Series(), repr=False)
    """Cycles along the one column that varies, and what is left without them."""

    @property
    def varying(self) -> int:
        """Number of columns of X that vary."""
        return len(self.features) - len(self.constant)

    @property
    def numbers(self) -> int:
        """Number of columns of X that vary and are no categories."""
        return self.varying - len({*self.categories} - {*self.constant})

    @property
    def likelihood(self) -> LikelihoodName | None:
        """Likelihood of codes, counts and values between bounds; None for measured values."""
        if self.told is not None:
            return None if self.told == "gaussian" else cast(LikelihoodName, self.told)
        if self.kind == "count":
            return "negative-binomial" if self.scatters else "poisson"
        return LIKELIHOODS.get(self.kind)

    @property
    def at_places(self) -> bool:
        """True if most rows repeat the place of another, of places enough to hold some out."""
        return self.repeated > MOSTLY and self.places >= LEAST_PLACES

    @property
    def settled(self) -> bool:
        """True if all candidates have the likelihood of the target, and none is Gaussian."""
        asked = self.told is not None or self.kind == "class" or bool(self.columns)
        return asked and self.likelihood is not None

    @property
    def text(self) -> str:
        """Text that tells profiles apart, by the name that checkpoints of earlier versions have."""
        return f"Facts{repr(self).removeprefix(type(self).__name__)}"

    def with_tails(self, scores: np.ndarray, alone: str = "") -> Profile:
        """Return the profile with what standardised residuals (n, p) of a trial say of tails.

        ``alone`` says what the rows have with which noise can only be Gaussian.
        """
        z = scores[np.isfinite(scores)]
        if self.kind != "measured" or self.told is not None or len(z) < 100:
            return self
        z = z - z.mean()
        kurtosis = float(np.mean(z**4) / max(np.mean(z**2) ** 2, np.finfo(float).tiny))
        if kurtosis < HEAVY:
            return self
        finding = f"residuals have heavy tails (kurtosis {kurtosis:.3g}, a Gaussian has 3): " + (
            f"Student-t noise, which suits them, cannot be with {alone}"
            if alone
            else "Student-t noise is tried"
        )
        return replace(self, heavy=True, findings=(*self.findings, finding))


def of_rows(
    rows: data.Rows,
    time: int | None,
    executor: Executor,
    told: str | None = None,
    varying: Collection[str] | None = None,
) -> Profile:
    """Return the profile of rows, from one pass over them and a sample.

    With the columns ``varying`` over others too, rows without the target are not left out, as they
    have another one.
    """
    spans = even_spans(rows)
    sums = sampling.describe(rows, spans, executor)
    names, d = rows.columns.inputs_names, rows.n_features
    data.refuse_lost(rows, sums.rows)
    scaling.check(sums, names, rows.target_names, scaling.Given.of(rows.arrays))
    flat = scaling.constant(sums, d) & ~np.isin(names, list(varying or ()))
    plain = scaling.identity(d, rows.n_targets)
    keys = sampling.Keys.by_content((0, 21), rows, sums)
    drawn = sampling.draw(rows, spans, plain, 4_096, keys, executor)
    X, y = np.asarray(drawn.rows.X), np.asarray(drawn.rows.y)[:, : rows.n_targets]
    few = [j for j in range(d) if not flat[j] and len(np.unique(X[:, j])) <= LEVELS < len(X)]
    share, per_place = repeats.of_sketch(sums.inputs)
    telling = repeats.telling(sums.inputs, sums.rows, X)
    constant = tuple(names[j] for j in np.flatnonzero(flat) if j not in rows.columns.sphere)
    discrete = tuple(names[j] for j in few if names[j] not in rows.categories)
    kind: Kind = "measured" if told == "gaussian" else _kind(sums, y, rows)
    times = times_of(rows) if time is None else (time,)
    token, scatters = str(dask.base.tokenize(*sums.parts)), False
    if rows.beside:
        spread, token = _with_columns(rows, spans, executor, token)
        scatters = kind == "count" and spread > MORE
    elif kind == "count":
        scatters = _relative_variance(sums, d) > MORE
    found = Profile(
        int(sums.rows),
        rows.feature_names,
        constant,
        discrete,
        kind,
        share if telling else 0.0,
        times=times,
        alike=rows.geographic is None or len(rows.feature_names) == 2,
        token=token,
        scatters=scatters,
        columns=tuple(rows.beside),
        places=repeats.distinct(sums.inputs) if telling else 0.0,
        told=told,
        weighted=rows.weight is not None,
        categories=tuple(name for name, own in rows.categories.items() if len(own) > 1),
    )
    if (
        found.kind == "measured"
        and found.varying == found.numbers == rows.n_targets == 1
        and not rows.columns.sphere
    ):
        column = next(j for j in range(d) if not flat[j])
        found = replace(found, series=repeating.of_series(X[:, column], y[:, 0]))
    return replace(found, findings=tuple(_findings(found, sums, per_place, varying is not None)))


def varying(rows: data.Rows, executor: Executor) -> tuple[str, ...]:
    """Return the columns of X that vary over rows, whichever targets these have."""
    ends = np.array(map_all(partial(_ends, rows), even_spans(rows), executor, "columns"))
    low, high = np.fmin.reduce(ends[:, 0]), np.fmax.reduce(ends[:, 1])
    return tuple(name for name, own in zip(rows.feature_names, high > low, strict=True) if own)


def _ends(rows: data.Rows, span: Span) -> list[np.ndarray]:
    X = np.asarray(rows.values("X", *span), np.float64)
    return [np.stack([np.fmin.reduce(X), np.fmax.reduce(X)])]


def of_sizes(rows: data.Rows, told: str | None = None) -> Profile:
    """Return what is known of rows without reading them."""
    kind = of_columns(rows.beside) or "measured"
    n, names, times, columns = len(rows), rows.feature_names, times_of(rows), tuple(rows.beside)
    weighted = rows.weight is not None
    found = Profile(n, names, (), (), kind, 0.0, times=times, columns=columns)
    return replace(found, told=told, weighted=weighted)


def of_columns(names: Collection[str]) -> Kind | None:
    """Return what a target is by the numbers that rows have beside it; None if they have none."""
    if "trials" in names:
        return "successes"
    if {*BOUNDS} & {*names}:
        return "bounded"
    return "count" if names else None


def _with_columns(
    rows: data.Rows, spans: Sequence[Span], executor: Executor, token: str
) -> tuple[float, str]:
    """Return the variance of counts over their mean, given exposures; and the data's identity."""
    found = map_all(partial(_sums_of_columns, rows), spans, executor, "columns")
    n, count, exposure, square = sum(sums for sums, _ in found)
    whole = str(dask.base.tokenize(token, [own for _, own in found]))
    return (float(square * exposure / count - count) / n if count > 0 else 1.0), whole


def _sums_of_columns(rows: data.Rows, span: Span) -> list[tuple[np.ndarray, str]]:
    """Return the number of rows, sums of y, exposure and y^2 / exposure, and a token."""
    X, y = rows.raw(*span)
    own, known = rows.beside_in(y), scaling.complete_rows(X, y)
    exposure = own.get("exposure", np.ones(len(y))) * np.exp(own.get("offset", np.zeros(len(y))))
    exposure, count = exposure[known], y[known, 0]
    sums = [len(count), count.sum(), exposure.sum(), (count**2 / exposure).sum()]
    return [(np.array(sums, np.float64), str(dask.base.tokenize(own)))]


def _kind(sums: scaling.Sums, y: np.ndarray, rows: data.Rows) -> Kind:
    """Return what targets (n, p) are, of which all rows' lowest and highest are known."""
    d = rows.n_features
    low, high = (np.asarray(part)[d : d + rows.n_targets] for part in (sums.low, sums.high))
    if rows.beside:
        return of_columns(rows.beside) or "measured"
    if rows.n_targets > 1 or rows.y_variance is not None:
        return "measured"
    if repeats.exact_count(sums.targets) == 2 and low[0] == 0 and high[0] == 1:
        return "class"
    whole = bool(np.all(y == np.rint(y)))
    counts = low[0] >= 0 and high[0] > 1 and 0 < sums.mean[d] < COUNTS
    if whole and counts and _relative_variance(sums, d) > LESS:
        return "count"
    return "measured"


def _relative_variance(sums: scaling.Sums, target: int) -> float:
    """Return the variance of a target over its mean."""
    return float(sums.scatter[target, target] / sums.weight / sums.mean[target])


def times_of(rows: data.Rows) -> tuple[int, ...]:
    """Return the columns that are times by their units, if others are not."""
    marks = tuple(j for j, unit in enumerate(rows.feature_units) if " since " in unit)
    return marks if 0 < len(marks) < len(rows.feature_names) else ()


def _findings(profile: Profile, sums: scaling.Sums, per_place: float, gaps: bool) -> list[str]:
    findings = []
    if sums.dropped and not gaps:
        findings.append(f"{int(sums.dropped):,} rows with missing values are left out")
    if profile.constant:
        are = "is" if len(profile.constant) == 1 else "are"
        findings.append(f"{_listed(profile.constant)} {are} the same in all rows: left out")
    if profile.discrete:
        take = "takes" if len(profile.discrete) == 1 else "take"
        findings.append(
            f"{_listed(profile.discrete)} {take} at most {LEVELS} values: treated as a number"
        )
    if profile.repeated > REPEATED:
        findings.append(
            f"about {100 * profile.repeated:.0f} % of the rows repeat the inputs of another, "
            f"{per_place:.3g} rows per place: their differences are noise"
            + ("; places are held out whole" if profile.at_places else "")
        )
    if profile.series.cycles:
        periods = ", ".join(f"{one.period:.4g}" for one in profile.series.cycles)
        findings.append(f"the target repeats itself every {periods}: a cycle of each is tried")
    if profile.told is not None:
        return findings
    if profile.kind == "class":
        findings.append("the target is 0 or 1: a Bernoulli likelihood")
    if profile.columns:
        columns = " and ".join(profile.columns)
        findings.append(
            f"the rows have {columns}: the target is {SAID[profile.kind]}, with a "
            f"{profile.likelihood} likelihood"
        )
    elif profile.kind == "count":
        spread = _relative_variance(sums, len(profile.features))
        law = "negative binomial" if profile.scatters else "Poisson"
        findings.append(
            f"the target is a small whole number in every row, of a variance {spread:.2g} times "
            f"its mean: a {law} likelihood is tried beside Gaussian noise"
        )
    return findings


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more columns" if len(names) > most else shown
