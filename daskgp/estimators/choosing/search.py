"""Search for a method, a kernel and sizes: rounds of trials on samples of rows that grow.

1. Kernels are compared by the exact GP on few rows; the simplest that is not surely worse is kept.
2. Methods are compared with this kernel on samples that grow by GROWTH; the better half goes on.
3. The next best kernels, and other sizes, of the best one are compared on the last sample.

Every trial starts at the hyper-parameters of the one before.  What is tried follows from expected
times, so that the same seed makes the same trials; the deadline only ends what takes longer.  On a
cluster the trials of a comparison run side by side.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
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
from daskgp.train.callbacks import Deadline, calling, until

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
SIDE_BY_SIDE = 8
"""Most trials that run at a time on a cluster."""
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
        difference = self._above(other)
        error = difference.std() / math.sqrt(max(len(difference), 1))
        return bool(difference.mean() > SURELY * error)

    def mostly_better(self, other: Tried) -> bool:
        """Return True if the loss is less than that of another, a tenth of either end left out.

        A few rows of huge loss do not count.
        """
        difference = np.sort(self._above(other))
        cut = len(difference) // 10
        return bool(len(difference) and difference[cut : len(difference) - cut].mean() < 0)

    def _above(self, other: Tried) -> np.ndarray:
        """Return by how much the loss of each row exceeds another; of the folds that both have."""
        n = min(len(self.loss), len(other.loss))
        difference = self.loss[:n] - other.loss[:n]
        return np.asarray(difference[np.isfinite(difference)])

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
    _played: dict[str, Any] = field(default_factory=dict)
    _samples: dict[int, int] = field(default_factory=dict)
    _deadlines: list[Deadline] = field(default_factory=list)
    _foreseen: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        played = self.kept.read() if self.kept else []
        self._played = {said["key"]: (said, arrays) for said, arrays in played}
        self.earlier = max((float(said.get("spent", 0.0)) for said, _ in played), default=0.0)

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
        only = self._run_all([Candidate("structure", base, "matern (ard)")], rows)
        if not only or only[0].kernel is None:
            return None
        first = only[0]
        assert first.kernel is not None
        self.facts = self.facts.with_tails(first.held_out.score)
        if base.kernel is not None:
            return first
        others = structures(base, self.facts, first.kernel)
        found = [first, *self._trials(others, rows, STRUCTURE)]
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
            seconds = least_of.seconds(plan, self.executor.threads(), self.rows)
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
            if found and not self._affordable(left[0], size, SEARCH):
                return found  # of others alone a round tells nothing
            current = self._trials(left, size, SEARCH, sure=not found)
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
            if self._expected([one for one in candidates if one.holds], size) <= left:
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
        other = [self._begun(replace(own, stage="structure"), one) for one in others]
        return self._improved(best, other[:OTHER_KERNELS])

    def _sized(self, best: Tried) -> Tried:
        """Return the best of a trial and those with other sizes."""
        return self._improved(best, sizes(best.next(), best.trial.rows))

    def _improved(self, best: Tried, candidates: Sequence[Candidate]) -> Tried:
        """Return the best of a trial and those of candidates that are surely better."""
        possible = [one for one in candidates if self._possible_one(one)]
        for one in self._trials(possible, best.trial.rows, SEARCH):
            if best.surely_worse(one):
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
    def _has_method(self) -> bool:
        """True if a method has been scored, so that there is one to choose."""
        return any(one.trial.stage == "method" and not one.trial.failed for one in self.tried)

    @property
    def _end_of_search(self) -> float:
        return self.deadline - (1 - SEARCH) * self.rules.seconds

    def slowness(self, method: str) -> float:
        """Return how many times longer than expected the trials of a method took, at least 1."""
        own = [number for number, one in enumerate(self.tried) if one.trial.method == method]
        expected = sum(self._foreseen[number] for number in own)
        took = sum(self.tried[number].trial.seconds for number in own)
        return max(1.0, took / expected) if expected else 1.0

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
        return bool(self._room_for([candidate], rows, share))

    def _room_for(
        self, candidates: Sequence[Candidate], rows: int, share: float
    ) -> list[Candidate]:
        """Return the candidates, in their order, that a share of the budget has room for."""
        found: list[Candidate] = []
        late = time.monotonic() >= self._end_of_search
        for candidate in () if late else candidates:
            if self._plan(candidate, rows) is None:  # said when its last fit is looked at
                continue
            seconds = self._expected([*found, candidate], rows)
            if self.spent + seconds <= share * self.rules.seconds:
                found.append(candidate)
        return found

    def _expected(self, candidates: Sequence[Candidate], rows: int) -> float:
        """Return the expected time of trials on so many rows, side by side on a cluster."""
        threads = self.executor.threads()
        each, work = [0.0], 0.0
        for candidate in candidates:
            plan = self._plan(candidate, rows)
            if plan is None:  # its trial fails at once
                continue
            each.append(candidate.seconds(plan, threads, self.rows))
            work += each[-1] * min(threads, max(plan.tasks, 1)) / threads
        together = max(work, *each) if self._at_a_time > 1 else sum(each)
        return len(self.parts.folds) * together

    def _plan(self, candidate: Candidate, rows: int) -> Plan | None:
        """Return the plan of a trial on so many rows; None if there can be none."""
        try:
            return plan_of(candidate.estimator, _placeholder(self.rows, rows), self.executor)
        except DaskgpError:
            return None

    @property
    def _at_a_time(self) -> int:
        """Number of trials that run at a time: one alone would leave most of a cluster idle."""
        return min(SIDE_BY_SIDE, self.executor.threads()) if self.executor.client else 1

    # -- trials ----------------------------------------------------------------------------------

    def _trials(
        self, candidates: Sequence[Candidate], rows: int, share: float, sure: bool = False
    ) -> list[Tried]:
        """Return the trials that a share of the budget has room for and that have a score.

        With ``sure`` there is one at least, of the first candidate that has a score, if any has.
        """
        batch = self._room_for(candidates, rows, share)
        found = self._run_all(batch, rows)
        for candidate in candidates if sure else ():
            if not found and candidate not in batch:
                found = self._run_all([candidate], rows)
        return found

    def _run_all(self, batch: Sequence[Candidate], rows: int) -> list[Tried]:
        """Return the trials of all candidates that have a score, in their order."""
        found, many = [], self._at_a_time > 1
        if many:
            self.spent += self._expected(batch, rows)
        for candidate, one in zip(batch, self._made(batch, rows), strict=True):
            if one is None:
                continue
            if not many:
                self.spent += self._expected([candidate], rows)
            self._keep(one, rows)
            self.tried.append(one)
            self._foreseen.append(self._expected([candidate], rows))
            self._say(one.trial, self._foreseen[-1])
            if not one.trial.failed:
                found.append(one)
        return found

    def _made(self, batch: Sequence[Candidate], rows: int) -> Iterator[Tried | None]:
        """Yield the trials of candidates, kept ones or new; None for one for which it is late."""
        if self._at_a_time == 1:
            for number, candidate in enumerate(batch):
                late = number and time.monotonic() >= self._end_of_search
                yield None if late else self._again(candidate, rows) or self._run(candidate, rows)
            return
        for number, fold in enumerate(self.parts.folds):
            self._sample(number, fold, rows)
        with ThreadPoolExecutor(self._at_a_time) as pool:
            try:
                running = [
                    pool.submit(copy_context().run, self._again_or_run, one, rows, number)
                    for number, one in enumerate(batch)
                ]
                for trial in running:
                    yield trial.result()
            except BaseException:
                self.began = -math.inf  # it is late for those that have not begun
                for deadline in self._deadlines:
                    deadline.at = -math.inf
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _again_or_run(self, candidate: Candidate, rows: int, number: int) -> Tried:
        return self._again(candidate, rows) or self._run(candidate, rows, number)

    def _run(self, candidate: Candidate, rows: int, number_of: int = 0) -> Tried:
        """Return the trial of a candidate; those side by side have numbers of their own."""
        began, keep = time.perf_counter(), f"{self.url}-kept-{number_of}"
        last: list[Any] = [None, None]
        pieces: list[HeldOut] = []
        failed, stopped, size = "", False, 0
        quiet = clone(candidate.estimator).set_params(progress=False)
        try:
            for number, fold in enumerate(self.parts.folds):
                if number and time.monotonic() > self._end_of_search:
                    if self._has_method:
                        raise RunError(f"the deadline came after {number} of its folds")
                    stopped = True  # something has to be chosen
                    break
                sample = self._sample(number, fold, rows)
                X, y = data.open_dataset(sample)
                size = max(size, len(X))
                with _silent(), calling(None), until(self._end_of_search) as deadline:
                    self._deadlines.append(deadline)
                    fitted = clone(quiet)
                    fitted._fit(X, y, keep=keep, noise=(None, None))
                    pieces.append(self._predicted(fitted.solved_, fold))
                stopped |= deadline.passed
                last = [fitted.kernel_, fitted.noise_variance_]
        except DaskgpError as error:
            failed = " ".join(str(error).split())[:300]
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            failed = f"{type(error).__name__}: {error}"
        finally:
            data.remove(keep)
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
        plan = self._plan(candidate, rows) if rows else None
        needed = bytes_of(plan, self.executor) if plan else 0
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
        if self._samples.get(number) != size:
            data.remove(url)
            self.parts.write(url, fold, size, self.rules.seed, self.executor)
            self._samples[number] = size
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
        self._foreseen.append(0.0)

    @property
    def of_mean(self) -> Tried:
        """Trial of the constant prediction."""
        return self.tried[0]

    # -- trials that were kept -------------------------------------------------------------------

    def _keep(self, one: Tried, rows: int) -> None:
        """Keep a trial for a search that goes on, unless it is kept already."""
        key = _key(one.candidate, rows)
        if self.kept is None or key in self._played:
            return
        said = {
            "trial": one.trial.to_dict(),
            "key": key,
            "kernel": None if one.kernel is None else describe(one.kernel),
            "noise_variance": one.noise_variance,
            "spent": time.monotonic() - self.began + self.earlier,
        }
        self.kept.append(len(self._played), said, one.held_out._asdict())
        self._played[key] = said, one.held_out._asdict()

    def _again(self, candidate: Candidate, rows: int) -> Tried | None:
        """Return the trial that is kept of a candidate, if there is one."""
        if _key(candidate, rows) not in self._played:
            return None
        said, arrays = self._played[_key(candidate, rows)]
        found = HeldOut(**arrays)
        kernel = None if said["kernel"] is None else kernel_from_dict(said["kernel"])
        trial = Trial.from_dict(said["trial"])
        loss = _loss(found, self.rules.metric)
        return Tried(trial, candidate, loss, found, kernel, said["noise_variance"])

    def _say(self, trial: Trial, expected: float) -> None:
        if trial.failed:
            logger.info("trial %d: %s failed: %s", len(self.tried) - 1, trial.label, trial.failed)
            return
        logger.info(
            "trial %d: %s, %s, %d rows: %s %.4g +- %.2g in %.1f s (%.1f s expected)",
            len(self.tried) - 1,
            trial.label,
            trial.kernel,
            trial.rows,
            self.rules.metric,
            trial.score,
            trial.error,
            trial.seconds,
            expected,
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


def _key(candidate: Candidate, rows: int) -> str:
    """Return text that tells trials of a search apart."""
    return f"{candidate.stage}|{candidate.key}|{rows}"


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
