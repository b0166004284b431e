"""Search for a method, a kernel and sizes: rounds of trials on samples of rows that grow.

1. Kernels are compared by the exact GP on few rows; the simplest that is not surely worse is kept.
2. Methods are compared with this kernel on samples that grow by GROWTH; the better half goes on.
3. The next best kernels, and other sizes, of the best one are compared on the last sample.

Every trial starts at the hyper-parameters of the one before.  What is tried follows from expected
times, so that the same seed makes the same trials; the deadline only ends what takes longer.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from daskgp import data
from daskgp.data.blocks import sampling
from daskgp.data.folds import Fold, Parts, Wanted
from daskgp.data.partition import Span
from daskgp.data.stores.trials import KeptTrials
from daskgp.errors import DaskgpError, InputError, PlanError, RunError
from daskgp.estimators.choosing.candidates import (
    Candidate,
    bytes_of,
    methods,
    plan_of,
    sizes,
    structure,
    structures,
)
from daskgp.estimators.choosing.facts import Facts
from daskgp.estimators.choosing.leaderboard import HeldOut, Leaderboard, Trial
from daskgp.estimators.exact import ExactGP
from daskgp.fit.plan import Plan
from daskgp.kernels import Kernel
from daskgp.kernels import from_dict as kernel_from_dict
from daskgp.kernels.registry import describe
from daskgp.metrics import rmse
from daskgp.predict import judged
from daskgp.predict.lazy import solved_node
from daskgp.predict.posterior import Solved
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor, map_all
from daskgp.runtime.process import single_blas_thread
from daskgp.train.callbacks import calling, until

logger = logging.getLogger("daskgp")

SEARCH = 0.6
"""Share of the budget that trials may take; the rest is for the last fit."""
STRUCTURE = 0.2
"""Share of the budget that the comparison of kernels may take."""
STRUCTURE_ROWS, FIRST_ROWS, GROWTH = 2_000, 4_000, 4
"""Rows of the trials of kernels, of the first round of methods, and growth from round to round."""
OTHER_KERNELS = 2
"""Kernels that the best method is tried with beside the one chosen on few rows."""
LEAST_ROWS = 250
"""Rows that no round has fewer of, if there are as many."""
SMALL = 5_000
"""Rows up to which the exact GP is taken where it is as good as others."""
TEST_ROWS = 4_096
"""Most held-out rows that trials are scored on."""
FOLDS = ((1_000, 5), (4_000, 3))
"""Most rows for which so many folds are made; one for more."""
SURELY = 2.0
"""Standard errors of the difference beyond which a candidate is surely worse."""


class Tried(NamedTuple):
    """A trial with what the search needs of it.

    ``loss`` (n,) is the metric at each held-out row; hyper-parameters are those of the last fold.
    """

    trial: Trial
    candidate: Candidate
    loss: np.ndarray
    held_out: HeldOut
    kernel: Kernel | None
    noise_variance: float | None

    @property
    def mean(self) -> float:
        """Mean of the loss."""
        return float(np.nanmean(self.loss))

    def surely_worse(self, other: Tried) -> bool:
        """Return True if the loss is greater than that of another beyond chance, row by row."""
        difference = self.loss - other.loss
        difference = difference[np.isfinite(difference)]
        error = difference.std() / math.sqrt(max(len(difference), 1))
        return bool(difference.mean() > SURELY * error)

    def next(self) -> Candidate:
        """Return the candidate at the hyper-parameters found."""
        return self.candidate.began(self.kernel, self.noise_variance)


@dataclass(frozen=True)
class Rules:
    """Limits of a search, and the score that decides.

    Attributes
    ----------
    seconds : float
        Time of search and last fit together.
    bytes : int, optional
        Most memory of a process.
    metric : {"nlpd", "crps", "rmse"}
    seed : int
    """

    seconds: float
    bytes: int | None
    metric: str
    seed: int


@dataclass
class Search:
    """A search over rows in parts; ``url`` is where it writes what it needs for a trial."""

    rules: Rules
    rows: data.Rows
    parts: Parts
    facts: Facts
    url: str
    executor: Executor
    began: float
    kept: KeptTrials | None = None
    tried: list[Tried] = field(default_factory=list)
    spent: float = 0.0
    earlier: float = 0.0
    _compared: list[Tried] = field(default_factory=list)
    _played: list[Any] = field(default_factory=list)
    _samples: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._played = self.kept.read() if self.kept else []
        self.earlier = sum(float(said["trial"]["seconds"]) for said, _ in self._played)

    @property
    def deadline(self) -> float:
        """Time of ``monotonic`` at which the budget is used up, that of earlier runs included."""
        return self.began + self.rules.seconds - self.earlier

    # -- the search ------------------------------------------------------------------------------

    def chosen(self, common: dict[str, Any], given: Sequence[Candidate] | None) -> Tried:
        """Return the trial whose candidate is to be fitted to all rows."""
        self._try_mean()
        start = None if given is not None else self._best_structure(common)
        candidates = given if given is not None else methods(self.facts, common, len(self.rows))
        candidates = [self._begun(one, start) for one in candidates]
        candidates = self._possible(candidates)
        best = self._preferred(self._rounds(candidates))
        if given is None:
            best = self._sized(self._with_other_kernels(best))
        return best

    def _preferred(self, leaders: Sequence[Tried]) -> Tried:
        """Return the best trial, or one as good of a method that does better on all rows.

        That is the exact GP where rows are few, and the local one where the sample is a small part.
        """
        best, n = leaders[0], self.facts.rows
        other = "exact" if n <= SMALL else "lma" if 2 * best.trial.rows < n else best.trial.method
        equals = (one for one in leaders if one.trial.method == other)
        return next((one for one in equals if not one.surely_worse(best)), best)

    def leaderboard(self, best: Tried) -> Leaderboard:
        """Return all trials with the one chosen."""
        trials = [one.trial for one in self.tried]
        rules, findings = self.rules, self.facts.findings
        return Leaderboard.of(rules.metric, trials, best.trial, len(self.rows), findings)

    def _best_structure(self, common: dict[str, Any]) -> Tried | None:
        """Return the trial of the exact GP with the kernel chosen; None where none is tried."""
        if self.facts.kind == "class":
            return None
        base = ExactGP(**common)
        rows = min(STRUCTURE_ROWS, self.most_rows)
        while not self._affordable(Candidate("structure", base), rows, STRUCTURE):
            if rows <= LEAST_ROWS:
                return None
            rows = max(rows // 2, LEAST_ROWS)
        first = self._try(Candidate("structure", base, "matern (ard)"), rows)
        if first is None or first.kernel is None:
            return None
        self.facts = self.facts.with_tails(first.held_out.score)
        if base.kernel is not None:
            return first
        found = [first]
        for candidate in structures(base, self.facts, first.kernel):
            if not self._affordable(candidate, rows, STRUCTURE):
                continue
            one = self._try(candidate, rows)
            if one is not None:
                found.append(one)
        self._compared = sorted(found, key=lambda one: one.mean)
        best = self._compared[0]
        shared = [one for one in found if "one lengthscale" in one.candidate.structure]
        simple = [*shared, first, *found]
        return next(one for one in simple if not one.surely_worse(best))

    def _begun(self, candidate: Candidate, start: Tried | None) -> Candidate:
        """Return a candidate with the kernel and the trend of a trial."""
        if start is None or candidate.discrete:
            return candidate
        own: dict[str, Any] = {}
        if _takes_trend(candidate):
            own["mean"] = start.candidate.estimator.mean
        named = replace(candidate, structure=start.candidate.structure)
        return named.having(**own).began(start.kernel, start.noise_variance)

    def _possible(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates whose last fit can fit budget and memory, the cheapest at least."""
        left = (1 - SEARCH) * self.rules.seconds
        found, least, refused = [], [], list[DaskgpError]()
        for candidate in candidates:
            try:
                plan = plan_of(candidate.estimator, self.rows, self.executor)
            except DaskgpError as error:
                logger.info("%s is not tried: %s", candidate.method, error)
                refused.append(error)
                continue
            if not self.fits(candidate, plan):
                continue
            least_of = candidate.having(optimizer=None) if candidate.holds else candidate
            seconds = least_of.seconds(plan, self.executor.threads())
            least.append((seconds, candidate))
            if seconds <= left:
                found.append(candidate)
            else:
                logger.info(
                    "%s is not tried: its fit of all rows would take about %.0f s, the budget "
                    "leaves %.0f s for it",
                    candidate.method,
                    seconds,
                    left,
                )
        if refused and len(refused) == len(candidates):
            raise refused[0]
        if not least:
            raise PlanError(
                f"no candidate fits in the memory allowed for {len(self.rows)} rows: raise memory, "
                "or give candidates with smaller sizes"
            )
        if not found:
            seconds, candidate = min(least, key=lambda pair: pair[0])
            raise PlanError(
                f"time_budget={self.rules.seconds:g} s is too little for {len(self.rows)} rows: "
                f"the fastest candidate, {candidate.method}, takes about {seconds:.0f} s for all "
                f"of them: give at least {seconds / (1 - SEARCH):.0f} s"
            )
        return found

    def _rounds(self, candidates: Sequence[Candidate]) -> list[Tried]:
        """Return the trials of the last round, the best first."""
        left, size = list(candidates), self._first_rows(candidates)
        found: list[Tried] = []
        while True:
            current: list[Tried] = []
            for number, candidate in enumerate(left):
                sure = not found and not current  # something has to be chosen
                if not sure and not self._affordable(candidate, size, SEARCH):
                    if found and number == 0:  # of others alone a round tells nothing
                        return found
                    continue
                one = self._try(candidate, size)
                if one is not None:
                    current.append(one)
            if not current:
                if not found:
                    raise RunError(self._why_none())
                return found
            found = sorted(current, key=lambda one: one.mean)
            if size >= self.most_rows:
                return found
            number = max(2, -(-len(found) // 2))
            first = self._preferred(found)
            going = [first, *(one for one in found if one is not first)]
            left = [one.next() for one in going[:number]]
            size = min(GROWTH * size, self.most_rows)

    def _first_rows(self, candidates: Sequence[Candidate]) -> int:
        """Return the rows of the first round, all candidates of which are to be affordable."""
        size, left = min(FIRST_ROWS, self.most_rows), SEARCH * self.rules.seconds - self.spent
        while size > LEAST_ROWS:
            # steps take the same time on any number of rows
            if sum(self._expected_or_none(one, size) for one in candidates if one.holds) <= left:
                break
            size = max(size // 2, min(LEAST_ROWS, self.most_rows))
        return size

    def _with_other_kernels(self, best: Tried) -> Tried:
        """Return the best of a trial and those with the next best kernels of the comparison.

        Few rows may prefer a kernel that many do not.
        """
        own, rows = best.candidate, best.trial.rows
        if rows <= STRUCTURE_ROWS or not own.holds:
            return best
        others = [one for one in self._compared if one.candidate.structure != own.structure]
        for other in others[:OTHER_KERNELS]:
            candidate = self._begun(replace(own, stage="structure"), other)
            if not self._affordable(candidate, rows, SEARCH) or not self._possible_one(candidate):
                continue
            one = self._try(candidate, rows)
            if one is not None and best.surely_worse(one):
                best = one
        return best

    def _sized(self, best: Tried) -> Tried:
        """Return the best of a trial and those with other sizes."""
        rows = best.trial.rows
        for candidate in sizes(best.next(), rows):
            if not self._affordable(candidate, rows, SEARCH) or not self._possible_one(candidate):
                continue
            one = self._try(candidate, rows)
            if one is not None and best.surely_worse(one):
                best = one
        return best

    def _possible_one(self, candidate: Candidate) -> bool:
        try:
            return bool(self._possible([candidate]))
        except DaskgpError:
            return False

    def _why_none(self) -> str:
        last = next((one.trial for one in reversed(self.tried) if one.trial.failed), None)
        return f"no candidate could be fitted{'' if last is None else f': {last.failed}'}"

    @property
    def most_rows(self) -> int:
        """Rows that fits of the largest fold see."""
        return max(self.parts.trained(fold) for fold in self.parts.folds)

    @property
    def _end_of_search(self) -> float:
        return self.deadline - (1 - SEARCH) * self.rules.seconds

    # -- what can be afforded --------------------------------------------------------------------

    def fits(self, candidate: Candidate, plan: Plan) -> bool:
        """Return True if a fit with a plan fits in the memory allowed."""
        needed = bytes_of(plan, self.executor)
        limit = self.rules.bytes
        if limit is None or needed <= limit:
            return True
        logger.info(
            "%s is not tried: it would take %.1f GiB, memory allows %.1f GiB",
            candidate.method,
            needed / 2**30,
            limit / 2**30,
        )
        return False

    def _affordable(self, candidate: Candidate, rows: int, share: float) -> bool:
        """Return True if a trial is expected to end within a share of the budget."""
        try:
            seconds = self._expected(candidate, rows)
        except DaskgpError:  # said when its last fit is looked at
            return False
        enough = self.spent + seconds <= share * self.rules.seconds
        return enough and time.monotonic() < self._end_of_search

    def _expected(self, candidate: Candidate, rows: int) -> float:
        """Return the expected time of a trial on so many rows."""
        plan = plan_of(candidate.estimator, _placeholder(self.rows, rows), self.executor)
        return len(self.parts.folds) * candidate.seconds(plan, self.executor.threads())

    # -- one trial -------------------------------------------------------------------------------

    def _try(self, candidate: Candidate, rows: int) -> Tried | None:
        """Return the trial of a candidate on so many rows; None if it failed."""
        number = len(self.tried)
        self.spent += self._expected_or_none(candidate, rows)
        if number < len(self._played):
            one = self._again(candidate, *self._played[number])
        else:
            one = self._run(candidate, rows)
            self._keep(number, one)
        self.tried.append(one)
        self._say(one.trial)
        return None if one.trial.failed else one

    def _expected_or_none(self, candidate: Candidate, rows: int) -> float:
        try:
            return self._expected(candidate, rows)
        except DaskgpError:
            return 0.0

    def _run(self, candidate: Candidate, rows: int) -> Tried:
        began = time.perf_counter()
        last: list[Any] = [None, None]
        pieces: list[HeldOut] = []
        failed, stopped, size = "", False, 0
        quiet = clone(candidate.estimator).set_params(progress=False)
        try:
            for number, fold in enumerate(self.parts.folds):
                if number and len(self.tried) > 1 and time.monotonic() > self._end_of_search:
                    raise RunError(f"the deadline came after {number} of its folds")
                sample = self._sample(number, fold, rows)
                X, y = data.open_dataset(sample)
                size = max(size, len(X))
                with _silent(), calling(None), until(self._end_of_search) as deadline:
                    fitted = clone(quiet)
                    fitted._fit(X, y, keep=f"{self.url}-kept", noise=(None, None))
                    pieces.append(self._predicted(fitted.solved_, fold))
                stopped |= deadline.passed
                last = [fitted.kernel_, fitted.noise_variance_]
        except DaskgpError as error:
            failed = " ".join(str(error).split())[:300]
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            failed = f"{type(error).__name__}: {error}"
        finally:
            data.remove(f"{self.url}-kept")
        took = time.perf_counter() - began
        found = _joined(pieces) if pieces and not failed else _nothing(self.rows)
        trial = self._trial(candidate, found, size, took, failed)
        trial = replace(trial, stopped=stopped, kernel=_named(candidate, last[0]))
        return Tried(trial, candidate, _loss(found, self.rules.metric), found, *last)

    def _trial(
        self, candidate: Candidate, found: HeldOut, rows: int, seconds: float, failed: str
    ) -> Trial:
        loss, metric = _loss(found, self.rules.metric), self.rules.metric
        score, error = _summary(loss, metric)
        if not failed and not math.isfinite(score):
            failed = f"its predictions have no {metric}"
        needed = 0
        if rows:
            few = _placeholder(self.rows, rows)
            try:
                needed = bytes_of(plan_of(candidate.estimator, few, self.executor), self.executor)
            except DaskgpError:  # it has failed for that reason
                needed = 0
        return Trial(
            candidate.stage,
            candidate.method,
            candidate.structure,
            candidate.settings,
            rows,
            score,
            error,
            _scores(found),
            round(seconds, 3),
            needed,
            failed=failed,
        )

    def _sample(self, number: int, fold: Fold, rows: int) -> str:
        """Return the URL of a sample of a fold's training rows; that of the last one is kept."""
        url = f"{self.url}-fold-{number}"
        size = min(rows, self.parts.trained(fold))
        if self._samples.get(number) != f"{size}":
            data.remove(url)
            self.parts.write(url, fold, size, self.rules.seed, self.executor)
            self._samples[number] = f"{size}"
        return url

    def _predicted(self, solved: Solved, fold: Fold) -> HeldOut:
        """Return predictions of the held-out rows that trials are scored on."""
        solved.refuse_spread(include_noise=True)
        share = TEST_ROWS / len(self.parts.folds) / max(self.parts.tested(fold), 1)
        task = partial(_tested, self.parts, fold, share, self.rules.seed)
        node = solved_node(solved, not self.executor.shares_memory)
        found = map_all(task, self.parts.spans, self.executor, "held-out", [node])
        return _joined([one for one in found if len(one.y)])

    def _try_mean(self) -> None:
        """Put the constant prediction on the board."""
        began = time.perf_counter()
        pieces: list[HeldOut] = []
        rows = 0
        for number, fold in enumerate(self.parts.folds):
            _, y = data.open_dataset(self._sample(number, fold, min(FIRST_ROWS, self.most_rows)))
            values = np.asarray(y).reshape(len(y), -1).astype(np.float64)
            rows = max(rows, len(values))
            share = TEST_ROWS / len(self.parts.folds) / max(self.parts.tested(fold), 1)
            task = partial(_constant, self.parts, fold, share, self.rules.seed, values, self.facts)
            here = map_all(task, self.parts.spans, self.executor, "held-out")
            pieces += [one for one in here if len(one.y)]
        if not pieces:
            raise InputError("no held-out row has all features and a known target: give more rows")
        found = _joined(pieces)
        loss = _loss(found, self.rules.metric)
        score, error = _summary(loss, self.rules.metric)
        took = round(time.perf_counter() - began, 3)
        trial = Trial("mean", "mean", "", {}, rows, score, error, _scores(found), took, 0)
        candidate = Candidate("mean", ExactGP())
        self.tried.append(Tried(trial, candidate, loss, found, None, None))
        if self._played:
            self._played.insert(0, None)

    @property
    def of_mean(self) -> Tried:
        """Trial of the constant prediction."""
        return self.tried[0]

    # -- trials that were kept -------------------------------------------------------------------

    def _keep(self, number: int, one: Tried) -> None:
        if self.kept is None:
            return
        said = {
            "trial": one.trial.to_dict(),
            "key": one.candidate.key,
            "kernel": None if one.kernel is None else describe(one.kernel),
            "noise_variance": one.noise_variance,
        }
        self.kept.append(number - 1, said, one.held_out._asdict())  # the mean is not kept

    def _again(self, candidate: Candidate, said: Any, arrays: dict[str, np.ndarray]) -> Tried:
        if said["key"] != candidate.key:
            raise RunError(
                "the trials kept at the checkpoint are of another search: remove it and fit again"
            )
        found = HeldOut(**arrays)
        kernel = None if said["kernel"] is None else kernel_from_dict(said["kernel"])
        trial = Trial.from_dict(said["trial"])
        loss = _loss(found, self.rules.metric)
        return Tried(trial, candidate, loss, found, kernel, said["noise_variance"])

    def _say(self, trial: Trial) -> None:
        if trial.failed:
            logger.info("trial %d: %s failed: %s", len(self.tried) - 1, trial.label, trial.failed)
            return
        logger.info(
            "trial %d: %s, %s, %d rows: %s %.4g +- %.2g in %.1f s",
            len(self.tried) - 1,
            trial.label,
            trial.kernel,
            trial.rows,
            self.rules.metric,
            trial.score,
            trial.error,
            trial.seconds,
        )


def folds_of(
    rows: data.Rows,
    n: int,
    task: str,
    time: int | None,
    places: Any,
    seed: int,
    url: str,
    executor: Executor,
) -> Parts:
    """Return the rows in folds that fit a task, in a store beside a URL."""
    number = next((folds for most, folds in FOLDS if n <= most), 1)
    blocks = (places if places is not None else "auto") if task == "gaps" else None
    column = time if task == "forecast" else None
    wanted = Wanted(number, blocks, None, column, seed, "give more rows, or fit daskgp.ExactGP")
    wanted.check()
    return wanted.made(rows, url, executor)


# -- held-out rows ---------------------------------------------------------------------------


def _chosen_rows(
    parts: Parts, fold: Fold, share: float, seed: int, span: Span
) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of a share of the rows of a span that a fold is tested on."""
    part = parts.of(span)
    keys = sampling.row_keys((seed, 23), span.start, span.rows)
    drawn = keys.astype(np.float64) / 2.0**64 < share
    places = np.flatnonzero(fold.tested[part] & (part >= 0) & drawn)
    X, y = parts.rows.raw(*span)
    return X[places], y[places]


def _tested(
    parts: Parts, fold: Fold, share: float, seed: int, span: Span, node: Node
) -> list[HeldOut]:
    X, y = _chosen_rows(parts, fold, share, seed, span)
    with single_blas_thread():
        found = judged.judge(opened(node), X, y)
    crps = np.full(found.y.shape, np.nan) if found.crps is None else found.crps
    return [
        HeldOut(
            np.asarray(X, np.float64),
            found.y,
            found.mean,
            found.variance,
            found.score,
            found.density,
            crps,
        )
    ]


def _constant(
    parts: Parts,
    fold: Fold,
    share: float,
    seed: int,
    training: np.ndarray,
    facts: Facts,
    span: Span,
) -> list[HeldOut]:
    """Return the prediction of held-out rows by the mean and variance of training targets."""
    X, y = _chosen_rows(parts, fold, share, seed, span)
    y = np.asarray(y[:, : training.shape[1]], np.float64)
    y = np.where(np.isfinite(y) & np.isfinite(X).all(axis=1)[:, None], y, np.nan)
    mean, variance = np.nanmean(training, axis=0), np.nanvar(training, axis=0)
    m = np.broadcast_to(mean, y.shape)
    v = np.broadcast_to(np.maximum(variance, np.finfo(float).tiny), y.shape)
    if facts.kind == "class":
        p = np.clip(m, 1e-6, 1 - 1e-6)
        density = np.where(y == 1, np.log(p), np.where(y == 0, np.log1p(-p), np.nan))
        nothing = np.full(y.shape, np.nan)
        return [HeldOut(X, y, p, p * (1 - p), nothing, density, nothing)]
    z = (y - m) / np.sqrt(v)
    density = -0.5 * (np.log(2 * np.pi * v) + z**2)
    return [HeldOut(X, y, m, v, z, density, judged.gaussian_crps(z, v))]


def _joined(pieces: Sequence[HeldOut]) -> HeldOut:
    if not pieces:
        raise InputError("no held-out row has all features and a known target: give more rows")
    return HeldOut(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))


def _nothing(rows: data.Rows) -> HeldOut:
    X, y = np.empty((0, len(rows.feature_names))), np.empty((0, rows.n_targets))
    return HeldOut(X, y, y, y, y, y, y)


def _loss(found: HeldOut, metric: str) -> np.ndarray:
    """Return the loss (n,) of each held-out row, averaged over targets in their spreads' units."""
    if not len(found.y):
        return np.empty(0)
    if metric == "rmse":
        unit = np.nanstd(found.y, axis=0)
        values = ((found.y - found.mean) / np.where(unit > 0, unit, 1.0)) ** 2
        values = values * np.mean(unit**2)
    else:
        values = -found.density if metric == "nlpd" else found.crps
    known = np.isfinite(values)
    number = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _summary(loss: np.ndarray, metric: str) -> tuple[float, float]:
    """Return the score and its standard error."""
    known = loss[np.isfinite(loss)]
    if not len(known):
        return math.nan, math.nan
    mean, error = float(known.mean()), float(known.std() / math.sqrt(len(known)))
    if metric != "rmse":
        return mean, error
    root = math.sqrt(mean)
    return root, error / (2 * root) if root > 0 else 0.0


def _scores(found: HeldOut) -> dict[str, float]:
    """Return the scores of held-out rows that there are."""
    if not len(found.y):
        return {}
    inside = np.abs(found.score) <= 1.959964
    values = {
        "rmse": rmse(found.y.ravel(), found.mean.ravel()),
        "nlpd": -float(np.nanmean(found.density)),
        "crps": _mean(found.crps),
        "coverage_95": _mean(np.where(np.isfinite(found.score), inside, np.nan)),
    }
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


# -- small things ----------------------------------------------------------------------------


def _named(candidate: Candidate, kernel: Kernel | None) -> str:
    """Return the structure of the kernel that a trial has found."""
    return candidate.structure if kernel is None else structure(kernel)


def _takes_trend(candidate: Candidate) -> bool:
    """Return True for methods that integrate over the coefficients of a trend."""
    return candidate.method in ("sgpr", "lma", "pic", "exact", "ssgp")


def _placeholder(rows: data.Rows, n: int) -> data.Rows:
    """Return rows of the same columns without content, for plans of fits to n rows."""
    one = np.float64(1)
    arrays = {name: np.broadcast_to(one, (n, *a.shape[1:])) for name, a in rows.arrays.items()}
    return rows.with_arrays(arrays, chunks=None, identity=None)


@contextmanager
def _silent() -> Iterator[None]:
    """Leave out the remarks of fits on samples, which the last fit makes again."""

    def serious(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or logger.isEnabledFor(logging.DEBUG)

    logger.addFilter(serious)
    try:
        yield
    finally:
        logger.removeFilter(serious)
