"""Trials of candidates on samples of rows: what they may take, and how they are made.

On a cluster trials of a comparison run side by side, each in a thread of the client.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import dask
import numpy as np
from distributed.system import MEMORY_LIMIT
from sklearn.base import clone

from daskgp import data
from daskgp.assess.leaderboard import HeldOut, Trial
from daskgp.choose.candidates import Candidate, bytes_of, plan_of
from daskgp.choose.held_out import (
    cells_of,
    constant,
    error_of,
    joined,
    loss_of,
    nothing,
    scores_of,
    summary,
    tested,
    with_spread,
)
from daskgp.choose.profile import Profile
from daskgp.data import reading
from daskgp.data.folds import Fold, Parts
from daskgp.data.stores.checkpoints import KeptTrials
from daskgp.errors import DaskgpError, RunError
from daskgp.estimators.exact import ExactGP
from daskgp.fit.hyperparameters import identity_of
from daskgp.fit.plan import Plan
from daskgp.kernels import Kernel
from daskgp.kernels import from_dict as kernel_from_dict
from daskgp.kernels.registry import describe
from daskgp.kernels.words import structure
from daskgp.models.markov import conditionals
from daskgp.posterior.posterior import Posterior
from daskgp.predict.lazy import posterior_node
from daskgp.runtime.executor import Executor, map_all
from daskgp.runtime.process import single_blas_thread
from daskgp.runtime.progress import Advance
from daskgp.train.callbacks import Deadline, calling, until

logger: logging.Logger = logging.getLogger("daskgp")

SEARCH = 0.6
"""Share of the budget that trials may take; the rest is for the last fit."""
TEST_ROWS, LEAST_TEST_ROWS, PER_SECOND = 4_096, 1_000, 50
"""Most held-out rows that trials are scored on, of small budgets, and those per second of it."""
AGAIN = 0.6
"""Time of a fold that begins where another has ended, in that of the first."""
SIDE_BY_SIDE = 8
"""Most trials that run at a time on a cluster."""
SURELY = 2.0
"""Standard errors of the difference beyond which a candidate is surely worse."""
OWN_SPREAD = 2_000
"""Most rows of trials that are scored with the spread that they have: there kernels are compared,
and a wrong one tells that a kernel does not fit."""
LOCAL = ("lma", "vecchia")
"""Methods of near rows."""
NOT_OF_TRIALS = ("device", "store", "progress")
"""Settings that the results of trials, and so of a search, do not depend on."""
MEAN_ROWS = 4_000
"""Rows whose mean and variance are the constant prediction."""


class Tried(NamedTuple):
    """A trial with what the search needs of it.

    ``loss`` (n,) is the metric at each held-out row; hyper-parameters are those of the last fold.
    A failure that is not ``lasting``, such as a cluster's, is tried again by a search that goes on.
    """

    trial: Trial
    candidate: Candidate
    loss: np.ndarray
    held_out: HeldOut
    kernel: Kernel | None
    noise_variance: float | None
    lasting: bool = True
    cells: np.ndarray | None = None
    """Number (n,) of the region of each held-out row, where neighbours are held out together."""
    learned: int = 0
    """Rows that hyper-parameters are from which it has held; 0 of a trial that has trained them."""
    learner: str = ""
    """Method that has trained those that it has held."""

    @property
    def mean(self) -> float:
        """Mean of the loss."""
        return float(np.nanmean(self.loss))

    def surely_worse(self, other: Tried, heavy: bool = False) -> bool:
        """Return True if the loss is greater than that of another beyond chance, row by row.

        Rows of a region that is held out err together, so that chance is that of regions.  Where
        tails are ``heavy`` the differences of a tenth of the rows at either end count as the next.
        """
        n = min(len(self.loss), len(other.loss))
        difference = self.loss[:n] - other.loss[:n]
        known = np.isfinite(difference)
        cells = None if self.cells is None else self.cells[:n][known]
        difference = difference[known]
        if heavy and len(difference):
            difference = np.clip(difference, *np.quantile(difference, [0.1, 0.9]))
        error = error_of(difference, cells)
        return bool(len(difference) and difference.mean() > SURELY * error)

    def surely_closer(self, other: Tried) -> bool:
        """Return True if the CRPS is less than that of another beyond chance."""
        n = min(len(self.loss), len(other.loss))
        ours, theirs = (loss_of(one.held_out, "crps")[:n] for one in (self, other))
        difference = theirs - ours
        known = np.isfinite(difference)
        cells = None if self.cells is None else self.cells[:n][known]
        difference = difference[known]
        error = error_of(difference, cells)
        return bool(len(difference) and difference.mean() > SURELY * error)

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


class Late(RunError):
    """End of a trial for which the search has no time."""


class Pace(NamedTuple):
    """Expected and real time of trials of some methods."""

    methods: list[str]
    expected: float
    took: float


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
    regions, forecast : bool
        Whether whole regions, or the last part of time, are held out; and whether it is time.
    spread : bool
        Whether the last fit learns the spread of predictions from rows that are left out.
    """

    seconds: float
    bytes: int | None
    metric: str
    seed: int
    regions: bool = False
    forecast: bool = False
    spread: bool = False


@dataclass
class Trials:
    """Trials of a search over rows in parts; ``url`` is where what they need is written."""

    rules: Rules
    rows: data.Rows
    parts: Parts
    profile: Profile
    url: str
    executor: Executor
    began: float
    kept: KeptTrials | None = None
    advance: Advance | None = None
    tried: list[Tried] = field(default_factory=list)
    spent: float = 0.0
    earlier: float = 0.0
    ended: bool = False
    share: float = SEARCH
    kept_back: float | None = None
    """Seconds kept for the last fit once trials go by the clock; None while by expected times."""
    _played: dict[str, Any] = field(default_factory=dict)
    _samples: dict[int, int] = field(default_factory=dict)
    _deadlines: list[Deadline] = field(default_factory=list)
    _paces: list[Pace] = field(default_factory=list)

    def __post_init__(self) -> None:
        played = self.kept.read() if self.kept else []
        self._played = {notes["key"]: (notes, arrays) for notes, arrays in played}
        self._number = len(played)
        self._paces = [Pace(**pace) for pace in (self.kept.paces() if self.kept else [])]
        self.earlier = max((float(notes.get("spent", 0.0)) for notes, _ in played), default=0.0)

    @property
    def deadline(self) -> float:
        """Time of ``monotonic`` at which the budget is used up, that of earlier runs included."""
        return -math.inf if self.ended else self.began + self.rules.seconds - self.earlier

    @property
    def end_of_search(self) -> float:
        """Time of ``monotonic`` after which no trial begins; the rest is for the last fit."""
        usual = (1 - SEARCH) * self.rules.seconds
        return self.deadline - (usual if self.kept_back is None else self.kept_back)

    @property
    def end_of_stage(self) -> float:
        """Time of ``monotonic`` at which trials of the present ``share`` of the budget end."""
        own = self.deadline - (1 - self.share) * self.rules.seconds
        return min(self.end_of_search, own)

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """End the trials in the block once a share of the budget is used up."""
        before, self.share = self.share, share
        try:
            yield
        finally:
            self.share = before

    @contextmanager
    def by_clock(self) -> Iterator[None]:
        """Let the clock say what there is room for, and not the times that were expected."""
        with self.within(1.0):
            self.kept_back = (1 - SEARCH) * self.rules.seconds
            try:
                yield
            finally:
                self.kept_back = None

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    @property
    def most_rows(self) -> int:
        """Rows that fits of the largest fold see."""
        return max(self.parts.trained(fold) for fold in self.parts.folds)

    @property
    def of_mean(self) -> Tried:
        """Trial of the constant prediction."""
        return self.tried[0]

    @property
    def has_method(self) -> bool:
        """True if a method has been scored, so that there is one to choose."""
        return any(one.trial.stage == "method" and not one.trial.failed for one in self.tried)

    @property
    def _quiet(self) -> Executor:
        """Executor without a progress line, of which several trials would make several."""
        return replace(self.executor, show=False)

    @property
    def _at_a_time(self) -> int:
        """Number of trials that run at a time: one alone would leave most of a cluster idle."""
        return min(SIDE_BY_SIDE, self.executor.threads()) if self.executor.client else 1

    def end(self) -> None:
        """Begin no other trial, and end the training that goes on with its best point so far."""
        self.ended = True
        for deadline in self._deadlines:
            deadline.at = -math.inf

    @contextmanager
    def until(self, at: float) -> Iterator[Deadline]:
        """End the training in the block at a time of ``monotonic``, or at `end`."""
        with until(at) as deadline:
            self._deadlines.append(deadline)
            deadline.at = -math.inf if self.ended else at  # it may have come since
            yield deadline

    @property
    def best_held(self) -> Tried | None:
        """Best trial of a method whose hyper-parameters can be held; None if there is none."""
        held = [one for one in self.tried[1:] if one.candidate.holds and not one.trial.failed]
        methods = [one for one in held if one.trial.stage != "structure"]
        return min(methods, key=lambda one: one.mean, default=None)

    # -- what can be afforded --------------------------------------------------------------------

    def pace(self, *methods: str) -> float:
        """Return how many times longer than expected trials of methods took; of all if of none.

        Those side by side count together; those kept, or cut short before that time, do not.
        """
        own = [pace for pace in self._paces if {*pace.methods} & {*methods}] or self._paces
        expected = sum(pace.expected for pace in own)
        return sum(pace.took for pace in own) / expected if expected else 1.0

    def slowness(self, method: str) -> float:
        """Return how many times longer than expected the trials of a method took, at least 1."""
        own = any(method in pace.methods for pace in self._paces)
        return max(1.0, self.pace(method)) if own else 1.0

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

    def room_for(self, candidates: Sequence[Candidate], rows: int, share: float) -> list[Candidate]:
        """Return the candidates, in their order, that a share of the budget has room for."""
        found: list[Candidate] = []
        now = time.monotonic()
        late, by_clock = now >= self.end_of_search, self.kept_back is not None
        for candidate in candidates:
            played = self._key(candidate, rows) in self._played
            if late and not played:
                continue
            if self.plan(candidate, rows) is None:  # said when its last fit is looked at
                continue
            seconds = self.expected([*found, candidate], rows)
            if by_clock:
                seconds *= self.pace(*(one.method for one in [*found, candidate]))
                room = played or now + seconds <= self.end_of_search
            else:
                room = self.spent + seconds <= share * self.rules.seconds
            if room:
                found.append(candidate)
        return found

    def first_kept(self, candidates: Sequence[Candidate], rows: int) -> Candidate | None:
        """Return the candidate whose trial was the first to be kept; None if none was."""
        order = {key: number for number, key in enumerate(self._played)}
        found = [(order.get(self._key(one, rows), math.inf), one) for one in candidates]
        number, first = min(found, key=lambda pair: pair[0], default=(math.inf, None))
        return first if math.isfinite(number) else None

    def expected(self, candidates: Sequence[Candidate], rows: int) -> float:
        """Return the expected time of trials on so many rows, side by side on a cluster."""
        threads = self.executor.threads()
        each, work, client = [0.0], 0.0, 0.0
        for candidate in candidates:
            plan = self.plan(candidate, rows)
            if plan is None:  # its trial fails at once
                continue
            seconds = candidate.seconds(plan, threads, self.rows)
            number = self._wanted_rows // len(self.parts.folds)
            each.append(seconds + candidate.predicting_seconds(plan, threads, number))
            work += each[-1] * min(threads, max(plan.tasks, 1)) / threads
            client += each[-1] if candidate.method == "exact" else 0.0  # its factors are made there
        together = max(work, client, *each) if self._at_a_time > 1 else sum(each)
        return (1 + AGAIN * (len(self.parts.folds) - 1)) * together

    def plan(self, candidate: Candidate, rows: int) -> Plan | None:
        """Return the plan of a trial on so many rows; None if there can be none."""
        try:
            return plan_of(candidate.estimator, _placeholder(self.rows, rows), self.executor)
        except DaskgpError:
            return None

    # -- trials ----------------------------------------------------------------------------------

    def run(self, batch: Sequence[Candidate], rows: int) -> list[Tried]:
        """Return the trials of all candidates that have a score, in their order."""
        found, many = [], self._at_a_time > 1
        if many:
            self.spent += self.expected(batch, rows)
        began, made = time.monotonic(), []
        for candidate, one in zip(batch, self._made(batch, rows), strict=True):
            if one is None:
                continue
            expected = self.expected([candidate], rows)
            if not many:
                self.spent += expected
                self._pace([one], rows, expected, one.trial.seconds)
            made.append(one)
            self._keep(one, rows)
            self.tried.append(one)
            self._say(one.trial, expected)
            self._show(candidate, rows, 1)
            if not one.trial.failed:
                found.append(one)
        if many:
            self._pace(made, rows, self.expected(batch, rows), time.monotonic() - began)
        return found

    def restate(self, before: Tried, now: Tried) -> None:
        """Put a trial in the place of what it was called before."""
        self.tried = [now if one is before else one for one in self.tried]

    def _show(self, candidate: Candidate, rows: int, steps: int = 0) -> None:
        """Show on the progress line what is tried, and the time used of the budget."""
        if self.advance is not None:
            used, budget = time.monotonic() - self.began + self.earlier, self.rules.seconds
            self.advance(steps, f"{candidate.method}, {rows:,} rows; {used:.0f} of {budget:.0f} s")

    def _pace(self, made: Sequence[Tried], rows: int, expected: float, took: float) -> None:
        """Remember how long trials took, if they were made now.

        The first one does not tell, as it loads what others have then, nor do those that were cut
        short before the expected time.
        """
        short = took <= expected and any(one.trial.stopped for one in made)
        whole = not short and not any(one.trial.failed for one in made)
        new = not any(self._key(one.candidate, rows) in self._played for one in made)
        if len(self.tried) > 1 and whole and new:
            methods = sorted({one.trial.method for one in made})
            self._paces.append(Pace(methods, expected, took))
            if self.kept:
                self.kept.learn([pace._asdict() for pace in self._paces])

    def _made(self, batch: Sequence[Candidate], rows: int) -> Iterator[Tried | None]:
        """Yield the trials of candidates, kept ones or new; None for one for which it is late."""
        many = min(self._at_a_time, self._with_memory(batch, rows))
        if many == 1:
            for number, candidate in enumerate(batch):
                yield self._again_or_run(candidate, rows, number)
            return
        for number, fold in enumerate(self.parts.folds):
            self._sample(number, fold, rows)
        pool = ThreadPoolExecutor(many, "daskgp-trial")
        # as fits in threads set them: the last to end would leave another's value
        apart = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"})
        try:
            with apart, single_blas_thread():
                running = [
                    pool.submit(copy_context().run, self._again_or_run, one, rows, number)
                    for number, one in enumerate(batch)
                ]
                for trial in running:
                    yield trial.result()
        except BaseException:
            self.end()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self) -> None:
        """Have compiled code, which tells no pace; making it, once, takes none of the budget."""
        began, used = time.monotonic(), time.process_time()
        conditionals.compiled()
        if time.process_time() - used > conditionals.LONG:  # it was not only read
            took = time.monotonic() - began
            self.began += took
            logger.info(
                "compiling code for neighbours, once for an installation, took %.0f s, which the "
                "budget does not count",
                took,
            )

    def _with_memory(self, batch: Sequence[Candidate], rows: int) -> int:
        """Return how many trials this process has memory for at a time, one at least."""
        plans = [self.plan(candidate, rows) for candidate in batch]
        most = max((plan.bytes_client for plan in plans if plan), default=1)
        return max(1, int((self.rules.bytes or MEMORY_LIMIT) // max(most, 1)))

    def _again_or_run(self, candidate: Candidate, rows: int, number: int) -> Tried | None:
        """Return the trial of one of several candidates; None if it is late for another."""
        kept = self._again(candidate, rows)
        late = number and time.monotonic() >= self.end_of_search
        return kept if kept or late else self._run(candidate, rows, number)

    def _run(self, candidate: Candidate, rows: int, number_of: int = 0) -> Tried:
        """Return the trial of a candidate; those side by side have numbers of their own."""
        if candidate.method in LOCAL and self.executor.client is None:
            self._compile()
        began, keep = time.perf_counter(), f"{self.url}-kept-{number_of}"
        self._show(candidate, rows)
        last: list[Any] = [None, None]
        pieces: list[HeldOut] = []
        failed, lasting, stopped, size = "", True, False, 0
        # fill values are missing in the samples already
        quiet = clone(candidate.estimator).set_params(progress=False, fill_values=None)
        try:
            for number, fold in enumerate(self.parts.folds):
                if number and time.monotonic() > self.end_of_stage:
                    if self.has_method:
                        raise Late(f"the deadline came after {number} of its folds")
                    stopped = True  # something has to be chosen
                    break
                sample = self._sample(number, fold, rows)
                X, y = data.open_dataset(sample)
                size = max(size, len(X))
                side = self._at_a_time > 1
                with _silent(side), calling(None), self.until(self.end_of_stage) as deadline:
                    own = candidate.again(*last).estimator if number else quiet
                    fitted = clone(own).set_params(progress=False, fill_values=None)
                    fitted._fit(X, y, keep=keep, of_part=True)
                    pieces.append(self._predicted(fitted.solved_, fold))
                stopped |= deadline.passed
                # joint targets have a noise variance each, which is found again
                last = [fitted.kernel_, None if candidate.joint else fitted.noise_variance_]
        except DaskgpError as error:
            failed = " ".join(str(error).split())[:300]
            lasting = isinstance(error, Late) or not isinstance(error, RunError)
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            failed = f"{type(error).__name__}: {error}"
        finally:
            data.remove(keep)
        took = time.perf_counter() - began
        found = joined(pieces) if pieces and not failed else nothing(self.rows)
        tried = self._tried(candidate, found, size, took, failed)
        plan = self.plan(candidate, size) if size else None
        trial = replace(
            tried.trial,
            kernel=self._named(candidate, last[0]),
            bytes=bytes_of(plan, self.executor) if plan else 0,
            stopped=stopped,
        )
        return tried._replace(trial=trial, kernel=last[0], noise_variance=last[1], lasting=lasting)

    def _tried(
        self, candidate: Candidate, found: HeldOut, rows: int, seconds: float, failed: str = ""
    ) -> Tried:
        """Return the trial that the predictions of held-out rows make."""
        metric = self.rules.metric
        if self.rules.spread and rows > OWN_SPREAD and candidate.learns_spread(self.rows):
            found = with_spread(found)  # as predictions of the last fit have it
        loss, cells = loss_of(found, metric), self._cells(found)
        score, error = summary(loss, metric, cells)
        if not failed and not math.isfinite(score):
            failed = f"its predictions have no {metric}"
        named = candidate.stage, candidate.method, candidate.structure, candidate.settings
        scores, took = scores_of(found), round(seconds, 3)
        if metric in scores and metric != "rmse":  # rows count alike, whatever they have of targets
            scores[metric] = score
        trial = Trial(*named, rows, score, error, scores, took, 0, failed=failed)
        return Tried(trial, candidate, loss, found, None, None, cells=cells)

    def _cells(self, found: HeldOut) -> np.ndarray | None:
        """Return the regions or places of held-out rows; None for rows held out one by one."""
        X = np.asarray(found.X, float)
        if self.rules.regions:
            return cells_of(X)
        if not self.profile.at_places:
            return None
        return np.unique(X, axis=0, return_inverse=True)[1].reshape(len(X))

    def _sample(self, number: int, fold: Fold, rows: int) -> str:
        """Return the URL of a sample of a fold's training rows; that of the last one is kept."""
        url = f"{self.url}-fold-{number}"
        size = min(rows, self.parts.trained(fold))
        if self._samples.get(number) != size:
            data.remove(url)
            self.parts.write(url, fold, size, self.rules.seed, self.executor)
            self._samples[number] = size
        return url

    def _predicted(self, posterior: Posterior, fold: Fold) -> HeldOut:
        """Return predictions of the held-out rows that trials are scored on."""
        posterior.refuse_spread(include_noise=True)
        node = posterior_node(posterior, not self.executor.shares_memory)
        return joined(self._held_out(fold, tested, nodes=[node]))

    def _held_out(
        self, fold: Fold, work: Callable[..., Any], *given: Any, nodes: Sequence[Any] = ()
    ) -> list[HeldOut]:
        """Return what tasks make of the held-out rows that trials are scored on."""
        share = self._wanted_rows / len(self.parts.folds) / max(self.parts.tested(fold), 1)
        task = partial(work, self.parts, fold, share, self.rules.seed, *given)
        found = map_all(task, self.parts.spans, self._quiet, "held-out", nodes)
        return [one for one in found if len(one.y)]

    def try_mean(self) -> None:
        """Put the constant prediction on the board."""
        began = time.perf_counter()
        pieces: list[HeldOut] = []
        rows = 0
        for number, fold in enumerate(self.parts.folds):
            _, y = data.open_dataset(self._sample(number, fold, min(MEAN_ROWS, self.most_rows)))
            values = np.asarray(y).reshape(len(y), -1).astype(np.float64)
            own = data.beside_in_store(y, self.profile.columns) if self.profile.columns else {}
            beside = {name: np.ravel(reading.all_of(a)) for name, a in own.items()}
            rows = max(rows, len(values))
            pieces += self._held_out(fold, constant, values, beside, self.profile)
        took = time.perf_counter() - began
        tried = self._tried(Candidate("mean", ExactGP()), joined(pieces), rows, took)
        trial = replace(tried.trial, method="mean", failed="")
        self.tried.append(tried._replace(trial=trial))

    # -- trials that were kept -------------------------------------------------------------------

    def _keep(self, one: Tried, rows: int) -> None:
        """Keep a trial for a search that goes on, unless it is kept already."""
        key = self._key(one.candidate, rows)
        if self.kept is None or key in self._played or not one.lasting:
            return
        notes = {
            "trial": one.trial.to_dict(),
            "key": key,
            "kernel": None if one.kernel is None else describe(one.kernel),
            "noise_variance": one.noise_variance,
            "spent": time.monotonic() - self.began + self.earlier,
        }
        self.kept.append(self._number, notes, one.held_out._asdict())
        self._number += 1

    def _again(self, candidate: Candidate, rows: int) -> Tried | None:
        """Return the trial that is kept of a candidate, if there is one."""
        if self._key(candidate, rows) not in self._played:
            return None
        notes, arrays = self._played[self._key(candidate, rows)]
        none = np.full(arrays["y"].shape, np.nan)  # of earlier versions
        found = HeldOut(**{"ranked": none, "right": none, **arrays})
        kernel = None if notes["kernel"] is None else kernel_from_dict(notes["kernel"])
        trial = Trial.from_dict(notes["trial"])
        loss = loss_of(found, self.rules.metric)
        noise, cells = notes["noise_variance"], self._cells(found)
        return Tried(trial, candidate, loss, found, kernel, noise, cells=cells)

    def _key(self, candidate: Candidate, rows: int) -> str:
        """Return text that tells trials apart, by all settings and by the rows that are held out.

        Other versions may have held out others.
        """
        own = candidate.estimator.get_params(deep=False).items()
        settings = {name: identity_of(value) for name, value in own if name not in NOT_OF_TRIALS}
        sizes = [self.parts.tested(fold) for fold in self.parts.folds]
        scored = self._wanted_rows, self.profile.at_places, self.rules.spread
        token = dask.base.tokenize(settings, sizes, *scored)
        return f"{candidate.stage}|{candidate.method}|{candidate.structure}|{rows}|{token}"

    @property
    def _wanted_rows(self) -> int:
        """Held-out rows that trials are scored on."""
        return min(TEST_ROWS, max(LEAST_TEST_ROWS, int(PER_SECOND * self.rules.seconds)))

    def _named(self, candidate: Candidate, kernel: Kernel | None) -> str:
        """Return the structure of the kernel that a trial has found."""
        known = self.rows.feature_names
        return candidate.structure if kernel is None else structure(kernel, known)

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


def whole(tried: Sequence[Tried]) -> list[Tried]:
    """Return the trials that have predicted as many held-out rows as any of them."""
    most = max((len(one.loss) for one in tried), default=0)
    return [one for one in tried if len(one.loss) == most]


def _placeholder(rows: data.Rows, n: int) -> data.Rows:
    """Return rows of the same columns without content, for plans of fits to n rows."""
    one = np.float64(1)
    arrays = {name: np.broadcast_to(one, (n, *a.shape[1:])) for name, a in rows.arrays.items()}
    return rows.with_arrays(arrays, chunks=None, identity=None)


@contextmanager
def _silent(side: bool) -> Iterator[None]:
    """Leave out the remarks of fits on samples, which the last fit makes again.

    They are those of this thread for trials ``side`` by side.
    """
    own = threading.get_ident()

    def serious(record: logging.LogRecord) -> bool:
        other = side and record.thread != own
        return other or record.levelno >= logging.ERROR or logger.isEnabledFor(logging.DEBUG)

    logger.addFilter(serious)
    try:
        yield
    finally:
        logger.removeFilter(serious)
